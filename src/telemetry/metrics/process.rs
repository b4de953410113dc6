//! Figures of the process itself, read when they are asked for: its log, and `/proc` on Linux.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::catalogue::{self, Kind, Spec};
use crate::telemetry::logs;

/// Reads and writes the figures.
#[derive(Debug)]
pub(super) struct Process;

/// A figure.
enum Figure {
    Whole(u64),
    Seconds(f64),
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lost = Figure::Whole(logs::lost());
        let mut figures = figures().unwrap_or_default();
        figures.push((&catalogue::LOG_LINES_LOST, lost));
        for (spec, figure) in figures {
            let kind = match spec.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let help = format!("{}.", spec.help);
            let mut encoder = encoder.encode_descriptor(spec.name, &help, None, kind)?;
            write(spec, &figure, &mut encoder)?;
        }
        Ok(())
    }
}

fn write(spec: &Spec, figure: &Figure, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match (spec.kind, figure) {
        (Kind::Counter, Figure::Whole(n)) => {
            encoder.encode_counter::<NoLabelSet, u64, u64>(n, None)
        }
        (Kind::Counter, Figure::Seconds(s)) => {
            encoder.encode_counter::<NoLabelSet, f64, u64>(s, None)
        }
        (Kind::Gauge | Kind::Histogram, Figure::Whole(n)) => encoder.encode_gauge(n),
        (Kind::Gauge | Kind::Histogram, Figure::Seconds(s)) => encoder.encode_gauge(s),
    }
}

type Figures = Vec<(&'static Spec, Figure)>;

#[cfg(target_os = "linux")]
fn figures() -> Option<Figures> {
    use procfs::WithCurrentSystemInfo as _;
    use procfs::process::LimitValue;

    let process = procfs::process::Process::myself().ok()?;
    let stat = process.stat().ok()?;
    let ticks = procfs::ticks_per_second();
    #[expect(clippy::cast_precision_loss, reason = "ticks of a process")]
    let seconds = |n: u64| n as f64 / ticks as f64;
    let boot = procfs::boot_time_secs().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
    let start = boot as f64 + seconds(stat.starttime);
    let threads = u64::try_from(stat.num_threads).unwrap_or(0);
    let mut figures = vec![
        (&catalogue::PROCESS_START, Figure::Seconds(start)),
        (
            &catalogue::PROCESS_CPU,
            Figure::Seconds(seconds(stat.utime + stat.stime)),
        ),
        (
            &catalogue::PROCESS_RESIDENT,
            Figure::Whole(stat.rss_bytes().get()),
        ),
        (&catalogue::PROCESS_VIRTUAL, Figure::Whole(stat.vsize)),
        (&catalogue::PROCESS_THREADS, Figure::Whole(threads)),
    ];
    if let Ok(open) = process.fd_count() {
        figures.push((&catalogue::PROCESS_FDS, Figure::Whole(open as u64)));
    }
    let limits = process.limits();
    if let Ok(LimitValue::Value(most)) = limits.map(|l| l.max_open_files.soft_limit) {
        figures.push((&catalogue::PROCESS_MAX_FDS, Figure::Whole(most)));
    }
    Some(figures)
}

#[cfg(not(target_os = "linux"))]
fn figures() -> Option<Figures> {
    None
}
