//! What is only looked at when somebody scrapes: depths of queues, what requests hold, how far the change feed is.

use crate::telemetry::Queue;

use super::{App, Configuration};

impl App {
    /// Brings the metrics up to date that nothing counts as it happens.
    pub fn look_around(&self) {
        let metrics = &self.metrics;
        metrics.held(
            self.slots.taken(),
            self.sessions.flights.waiting(),
            self.inflight.bytes(),
        );
        for (queue, depth) in [
            (Queue::Tasks, self.tasks.running()),
            (Queue::SessionRecords, self.sessions.records.depth()),
            (Queue::Uses, self.uses.depth()),
            (Queue::Capture, self.capture.depth()),
            (Queue::Traces, self.traces.depth()),
        ] {
            metrics.queue(queue, depth);
        }
        metrics.configuration(self.configuration() == Configuration::Current);
        metrics.session_records_lost(self.sessions.records.lost());
        let up = metrics.up();
        let looked = *self.feed.looked.lock();
        metrics.feed_stands(looked.map_or(up, |at| at.elapsed()), self.applied());
    }
}
