//! What is known of one request for logs and headers: its identifiers and when each stage began.

use std::fmt::Write as _;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::ids::RequestId;
use crate::request::Stage;

/// Identifiers and start of a request; made by the outermost layer.
#[derive(Debug, Clone)]
pub struct RequestMeta {
    /// The client's `X-Request-ID` when it is a valid one, else minted.
    pub id: RequestId,
    /// The trace id of `traceparent`, else a new one: 32 lower-case hex digits.
    pub trace: Arc<str>,
    /// When the head arrived.
    pub started: Instant,
}

/// The stages a request has entered, in order.
#[derive(Debug, Default)]
pub struct Trail {
    entered: SmallVec<[(Stage, Instant); 12]>,
}

impl Trail {
    /// Notes that `stage` begins now.
    pub fn enter(&mut self, stage: Stage) {
        self.entered.push((stage, Instant::now()));
    }

    /// The stage the request is in.
    #[must_use]
    pub fn current(&self) -> Option<Stage> {
        self.entered.last().map(|(stage, _)| *stage)
    }

    /// The `Server-Timing` value: every stage entered so far with its duration in milliseconds; the last one has none yet.
    #[must_use]
    pub fn server_timing(&self) -> String {
        let mut text = String::with_capacity(self.entered.len() * 32);
        for (i, (stage, began)) in self.entered.iter().enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            text.push_str(stage.name());
            if let Some((_, ended)) = self.entered.get(i + 1) {
                let us = ended.duration_since(*began).as_micros();
                // Writing to a String cannot fail.
                let _written = write!(text, ";dur={}.{:03}", us / 1_000, us % 1_000);
            }
        }
        text
    }
}
