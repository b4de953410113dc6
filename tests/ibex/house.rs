//! Rules of the house that no lint knows.

use std::path::{Path, PathBuf};

/// Most lines of a source file before its tests begin.
const MOST_LINES: usize = 400;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut found,
    );
    let of_tests = |p: &PathBuf| {
        let under_tests = p.components().any(|c| c.as_os_str() == "tests");
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        under_tests || matches!(name, "tests.rs" | "testing.rs")
    };
    found.retain(|p| !of_tests(p));
    let read = |p: PathBuf| {
        let text = std::fs::read_to_string(&p).expect("a source file");
        (p, text)
    };
    found.into_iter().map(read).collect()
}

#[test]
fn a_source_file_is_short() {
    let lines = |text: &str| {
        text.lines()
            .take_while(|l| l.trim() != "#[cfg(test)]")
            .count()
    };
    let long: Vec<String> = all()
        .iter()
        .map(|(path, text)| (path, lines(text)))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{}: {lines}", path.display()))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_source_file_opens_with_what_it_is_for() {
    let silent: Vec<PathBuf> = all()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
}
