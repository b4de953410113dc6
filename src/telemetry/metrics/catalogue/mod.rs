//! The catalogue: every metric, once. What is registered, what the documents say and what the dashboards may ask for comes from here.

mod list;
mod page;
pub(in crate::telemetry) mod sets;

pub use list::ALL;
pub(super) use list::*;
pub use page::page;

/// How a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total` where it is exposed.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Values in buckets.
    Histogram,
}

/// What a metric is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, which the help names.
    Things,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Tokens.
    Tokens,
    /// A ratio.
    Ratio,
}

impl Unit {
    /// The word for the documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Things => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
            Self::Ratio => "ratio",
        }
    }
}

/// What a label may say.
#[derive(Debug, Clone, Copy)]
pub enum Values {
    /// One of these.
    Closed(fn() -> Vec<&'static str>),
    /// What this binary was built with, as the text says.
    Built(&'static str, fn() -> Vec<&'static str>),
    /// Names that the operator gave, as the text says.
    Configured(&'static str),
}

impl Values {
    /// The closed set, if it is one.
    #[must_use]
    pub fn closed(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Closed(values) | Self::Built(_, values) => Some(values()),
            Self::Configured(_) => None,
        }
    }
}

/// A label.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What it may say.
    pub values: Values,
}

/// One metric.
#[derive(Debug)]
pub struct Spec {
    /// The name, without the `_total` of a counter.
    pub name: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// Its labels, in the order in which cells are named.
    pub labels: &'static [Label],
    /// What it says.
    pub help: &'static str,
    /// Whether exposed histograms carry exemplars.
    pub exemplars: bool,
}

/// Seconds, from 50 microseconds to 100 seconds.
const SECONDS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
    5.0, 30.0, 100.0,
];

/// Ratios around 1, where estimates should be.
const RATIOS: [f64; 11] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0];

impl Spec {
    /// The name of its series; a histogram's end in `_bucket`, `_sum` and `_count` as well.
    #[must_use]
    pub fn exposed(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }

    /// The bounds of a histogram's buckets.
    #[must_use]
    pub const fn buckets(&self) -> &'static [f64] {
        match self.unit {
            Unit::Ratio => &RATIOS,
            Unit::Things | Unit::Seconds | Unit::Bytes | Unit::Tokens => &SECONDS,
        }
    }
}
