//! The question that one of the notes answers.

/// A question that the note of number `i` answers.
pub(crate) fn question(i: usize) -> String {
    format!("Where is note {i:05} kept, and near which window?")
}
