//! The documented order of the write path is the order in which its stages are called.

use ibex::memory::write::stage::WriteStage;

fn text(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Where each of `names` first stands in `text`.
fn places(text: &str, names: impl Iterator<Item = String>) -> Vec<usize> {
    names
        .map(|name| {
            text.find(&name)
                .unwrap_or_else(|| panic!("{name} is missing"))
        })
        .collect()
}

#[test]
fn the_stages_are_called_in_their_order() {
    let code = text("src/memory/write/mod.rs");
    let calls = places(
        &code,
        WriteStage::ALL
            .iter()
            .map(|s| format!("{}::stage(", s.name())),
    );
    assert!(calls.is_sorted(), "{calls:?}");
}

#[test]
fn the_architecture_lists_them_in_their_order() {
    let document = text("ARCHITECTURE.md");
    let path = document
        .split("src/memory/write/stage.rs")
        .next()
        .unwrap_or_default();
    let drawn = path.rsplit("```").nth(1).unwrap_or_default();
    let listed = places(drawn, WriteStage::ALL.iter().map(|s| s.name().to_owned()));
    assert!(listed.is_sorted(), "{listed:?} in {drawn}");
}
