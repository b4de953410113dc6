//! The documented order is the order of a real request.

use ibex::request::{OnFailure, Stage};

use super::{CHAT, chat};
use crate::support::{TestApp, Upstream};

fn in_code() -> Vec<&'static str> {
    Stage::ALL.iter().map(|s| s.name()).collect()
}

#[tokio::test]
async fn a_request_passes_the_stages_in_their_order() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client().post(CHAT, &chat()).await;
    let timing = answer.header("server-timing").to_owned();
    let passed: Vec<&str> = timing
        .split(", ")
        .map(|entry| entry.split(';').next().unwrap_or_default())
        .collect();
    assert_eq!(passed, in_code());
}

/// The names in the rows of a document's stage table: a number in the first column, a name in backticks in the second.
fn documented(file: &str) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, name, ..] = cells.as_slice() else {
            continue;
        };
        let name = name.strip_prefix('`').and_then(|n| n.strip_suffix('`'));
        if let (Ok(number), Some(name)) = (number.parse::<usize>(), name) {
            assert_eq!(number, rows.len() + 1, "{file} counts its stages");
            rows.push(name.to_owned());
        }
    }
    rows
}

#[test]
fn the_architecture_lists_the_stages_in_their_order() {
    assert_eq!(documented("ARCHITECTURE.md"), in_code());
}

#[test]
fn the_readme_lists_the_stages_in_their_order() {
    assert_eq!(documented("README.md"), in_code());
}

/// The last column of the architecture's table says what a stage that cannot do its work does to the request.
#[test]
fn the_architecture_says_which_stages_fail_open() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("the document");
    for stage in Stage::ALL {
        let name = format!("| `{}` |", stage.name());
        let row = text.lines().find(|line| line.contains(&name));
        let said = row.and_then(|row| row.trim_end_matches(" |").rsplit("| ").next());
        let meant = match stage.on_failure() {
            OnFailure::Closed => "closed",
            OnFailure::Open => "open",
        };
        assert_eq!(said, Some(meant), "{}", stage.name());
    }
}
