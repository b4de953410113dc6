//! How far an import is: a bar on a terminal, a line now and then elsewhere; both on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::standing::Standing;

/// Faulty lines that are told one by one.
const TOLD: u32 = 20;
/// Between two lines of a progress without a bar.
const PERIOD: Duration = Duration::from_secs(5);
/// The bar: share, bytes, rate, time left, counts.
const TEMPLATE: &str = "{bar:20} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left  {msg}";

/// The progress of one run.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    told: u32,
    last: Instant,
}

impl Progress {
    /// A progress over a file of `bytes`, of which `done` were done before.
    pub(super) fn new(bytes: u64, done: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr())
            .with_position(done);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.reset_eta();
        Self {
            bar,
            told: 0,
            last: Instant::now(),
        }
    }

    /// Shows where the import stands.
    ///
    /// # Errors
    /// When standard error cannot be written.
    pub(super) fn reached(&mut self, standing: &Standing) -> io::Result<()> {
        self.bar.set_position(standing.offset);
        self.bar.set_message(standing.tally.to_string());
        if !self.bar.is_hidden() || self.last.elapsed() < PERIOD {
            return Ok(());
        }
        self.last = Instant::now();
        self.say(format_args!(
            "{} of {}: {}",
            HumanBytes(standing.offset),
            HumanBytes(standing.fingerprint.bytes),
            standing.tally
        ))
    }

    /// Tells of a line that could not be imported; of many only the first.
    ///
    /// # Errors
    /// When standard error cannot be written.
    pub(super) fn fault(&mut self, line: u64, reason: &str) -> io::Result<()> {
        self.told = self.told.saturating_add(1);
        if self.told < TOLD {
            return self.say(format_args!("line {line}: {reason}"));
        }
        if self.told == TOLD {
            return self.say(format_args!(
                "line {line}: {reason} (further lines are only counted)"
            ));
        }
        Ok(())
    }

    /// Writes a line above the bar.
    ///
    /// # Errors
    /// When standard error cannot be written.
    pub(super) fn say(&self, text: impl Display) -> io::Result<()> {
        self.bar.suspend(|| writeln!(io::stderr(), "ibex: {text}"))
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
