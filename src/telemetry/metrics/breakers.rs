//! What the breakers tell: whether a dependency is left alone now, and how often it came to that.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::cells::{Cells, Count, Level};
use super::labels::label;
use super::{Book, catalogue};

label! {
    /// What a breaker stands before.
    Breaker {
        /// The embedder behind HTTP.
        Embedder = "embedder",
        /// PostgreSQL.
        Postgres = "postgres",
        /// Redis.
        Redis = "redis",
    }
}

#[derive(Debug, Default)]
struct State {
    open: AtomicI64,
    opened: AtomicU64,
}

/// What breakers before one dependency count; clones count together. It can be made before there are any metrics.
#[derive(Debug, Clone, Default)]
pub struct BreakerFigures(Arc<State>);

impl BreakerFigures {
    /// One of them has opened.
    pub fn opened(&self) {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// It has closed again.
    pub fn closed(&self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The breakers of the process.
#[derive(Debug)]
pub(super) struct Breakers {
    open: Cells<Level>,
    opened: Cells<Count>,
    watched: Mutex<Vec<(Breaker, BreakerFigures)>>,
}

impl Breakers {
    pub(super) fn new(book: &mut Book) -> Self {
        let this = Self {
            open: Cells::of(&catalogue::BREAKER_OPEN),
            opened: Cells::of(&catalogue::BREAKER_OPENED),
            watched: Mutex::default(),
        };
        book.add(&catalogue::BREAKER_OPEN, this.open.clone());
        book.add(&catalogue::BREAKER_OPENED, this.opened.clone());
        this
    }

    pub(super) fn watch(&self, breaker: Breaker, figures: BreakerFigures) {
        self.watched.lock().push((breaker, figures));
    }

    /// Takes over what they have counted.
    pub(super) fn refresh(&self) {
        for (breaker, figures) in &*self.watched.lock() {
            let label = [breaker.as_str()];
            let open = figures.0.open.load(Ordering::Relaxed) > 0;
            self.open.set(&label, open.into());
            if let Some(count) = self.opened.at(&label) {
                count.raise_to(figures.0.opened.load(Ordering::Relaxed));
            }
        }
    }
}
