//! What the service tells about itself: metrics, log lines, traces, and the dashboards and alerts that read them.

mod catalogue;
mod exposition;
mod line;
mod monitoring;
mod traces;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::TestApp;

/// One line of an exposition that is no comment: name, labels, and what follows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    name: String,
    labels: Vec<(String, String)>,
}

/// The series of an exposition, its values left out.
fn series(text: &str) -> BTreeSet<Series> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a value"));
            let labels = rest
                .strip_prefix('{')
                .and_then(|rest| rest.split_once("} "))
                .map_or("", |(labels, _)| labels);
            let labels = labels
                .split("\",")
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once("=\"").expect("a label"))
                .map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()));
            Series {
                name: name.to_owned(),
                labels: labels.collect(),
            }
        })
        .collect()
}

/// The families that an exposition declares, by name and type.
fn families(text: &str) -> BTreeSet<(String, String)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

/// The exposition in the text format.
async fn scraped(app: &TestApp) -> String {
    let answer = app.client().get("/metrics").await;
    String::from_utf8(answer.body.to_vec()).expect("text")
}

/// A file of `config/monitoring`.
fn monitoring_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config/monitoring")
        .join(name)
}
