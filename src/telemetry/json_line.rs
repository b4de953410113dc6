//! An event as one JSON object on a line: `timestamp`, `level`, the event's own fields, `target`.
//!
//! The request's line has thirty fields and is written for every request. The general serialiser of the log library goes through a map of
//! trait objects and takes nine times the instructions; this one pushes text.

use std::error::Error;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime as Rfc3339};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events so. Spans are left out: none of ours has fields, and those of libraries say nothing to an operator.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        let mut line = String::with_capacity(USUAL);
        line.push_str("{\"timestamp\":\"");
        Rfc3339.format_time(&mut Writer::new(&mut line))?;
        line.push_str("\",\"level\":\"");
        line.push_str(name(*meta.level()));
        line.push('"');
        let mut members = Members {
            line,
            bridged: (meta.target() == BRIDGE).then(String::new),
            outcome: Ok(()),
        };
        event.record(&mut members);
        let Members {
            mut line,
            bridged,
            outcome,
        } = members;
        outcome?;
        line.push_str(",\"target\":");
        push_string(&mut line, bridged.as_deref().unwrap_or(meta.target()));
        line.push_str("}\n");
        // At once: the way to the writer is long.
        writer.write_str(&line)
    }
}

/// Bytes of a request's line, and some more.
const USUAL: usize = 1_280;

const fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        Level::DEBUG => "DEBUG",
        Level::TRACE => "TRACE",
    }
}

/// The target of events that came through the `log` facade. Where they really come from stands in fields of their own.
const BRIDGE: &str = "log";

/// The members of the object, one after the other.
struct Members {
    line: String,
    /// The target that an event of the `log` facade names.
    bridged: Option<String>,
    outcome: fmt::Result,
}

impl Members {
    /// One member, unless something failed before.
    fn member(&mut self, field: &Field, value: impl FnOnce(&mut String) -> fmt::Result) {
        if self.outcome.is_err() || self.bridged.is_some() && field.name().starts_with("log.") {
            return;
        }
        self.line.push_str(",\"");
        // Names are identifiers, or literals with nothing in them to escape.
        self.line.push_str(field.name());
        self.line.push_str("\":");
        self.outcome = value(&mut self.line);
    }

    fn string(&mut self, field: &Field, value: &str) {
        self.member(field, |line| {
            push_string(line, value);
            Ok(())
        });
    }
}

impl Visit for Members {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.member(field, |line| {
            if value.is_finite() {
                // With a point or an exponent, also where the number is whole: a field keeps its type.
                write!(line, "{value:?}")
            } else {
                line.write_str("null")
            }
        });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, |line| write!(line, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, |line| write!(line, "{value}"));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.member(field, |line| write!(line, "{value}"));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.member(field, |line| write!(line, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        let text = if value { "true" } else { "false" };
        self.member(field, |line| line.write_str(text));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "log.target"
            && let Some(target) = &mut self.bridged
        {
            value.clone_into(target);
        }
        self.string(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.string(field, &value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.string(field, &format!("{value:?}"));
    }
}

/// A JSON string.
fn push_string(line: &mut String, text: &str) {
    line.push('"');
    // Nearly no text has any, and this loop looks at many bytes at a time.
    let escaped = text.bytes().fold(false, |any, b| any | is_escaped(b));
    if escaped {
        push_escaped(line, text);
    } else {
        line.push_str(text);
    }
    line.push('"');
}

fn push_escaped(line: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            control if control < ' ' => {
                let digit = |shift: u32| char::from_digit(u32::from(control) >> shift & 15, 16);
                line.push_str("\\u00");
                line.extend([digit(4), digit(0)].into_iter().flatten());
            }
            plain => line.push(plain),
        }
    }
}

const fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tracing_subscriber::fmt::MakeWriter;

    use super::{JsonLine, push_string};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Sink {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    fn line(tell: impl FnOnce()) -> Value {
        let sink = Sink::default();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JsonLine)
            .with_writer(sink.clone())
            .finish();
        // While there is one subscriber alone, a callsite that another test met first stays silent.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        tracing::subscriber::with_default(subscriber, tell);
        let written = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let text = written.strip_suffix('\n').unwrap();
        assert!(!text.contains('\n'), "one line");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_kind_of_value_keeps_its_type() {
        let absent: Option<u64> = None;
        let mut line = line(|| {
            tracing::info!(
                text = "a \"b\"\\\n\u{1}é",
                whole = 1.0,
                part = 0.25,
                endless = f64::INFINITY,
                less = -3_i64,
                great = u64::MAX,
                greater = u128::MAX,
                yes = true,
                absent,
                debug = ?Some("x"),
                shown = %"y",
                error = &io::Error::other("broken") as &(dyn std::error::Error + 'static),
                "said {}",
                1
            );
        });
        let time = line["timestamp"].take();
        assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        let greater = line.as_object_mut().unwrap().remove("greater").unwrap();
        assert!(greater.is_number());
        assert_eq!(
            line,
            json!({
                "timestamp": null, "level": "INFO", "message": "said 1", "text": "a \"b\"\\\n\u{1}é", "whole": 1.0, "part": 0.25,
                "endless": null, "less": -3, "great": u64::MAX, "yes": true, "debug": "Some(\"x\")", "shown": "y", "error": "broken",
                "target": module_path!(),
            })
        );
    }

    proptest! {
        #[test]
        fn any_text_is_one_string(text in "[\\PC\\x00-\\x1f\"\\\\]{0,40}") {
            let mut out = String::new();
            push_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
