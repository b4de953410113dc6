//! The log of a test's service, in memory.

use std::io::Write;
use std::sync::Arc;

use ibex::telemetry::JsonLine;
use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::fmt::MakeWriter;

/// What was logged, in JSON; the same for all clones.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// Logs go to where they went before once it is dropped.
pub(crate) struct Capturing {
    _guard: DefaultGuard,
    _second: Dispatch,
}

impl Log {
    /// Logs of this thread by `filter`. The runtime of a test is its thread, so that is every task of its service.
    pub(crate) fn captured(filter: &str) -> (Self, Capturing) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JsonLine)
            .with_env_filter(filter)
            .with_writer(log.clone())
            .finish();
        let capturing = Capturing {
            _guard: set_default(subscriber),
            // While there is one subscriber alone, whichever thread meets a callsite first decides for all: a test beside this one, which
            // has none, would silence it here.
            _second: Dispatch::new(tracing_subscriber::registry()),
        };
        (log, capturing)
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("a log is text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
