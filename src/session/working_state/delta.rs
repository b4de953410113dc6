//! What changed between two states, as text for a model, and the envelope around it.

use crate::memory::{escape, push_escaped};

use super::{List, Seen, WorkingState};

/// What leads from one state to another: one change a line, in the order of [`List::ALL`], in each list first what left and then what
/// came or changed. Nothing when nothing did. From the empty state it is the whole state.
///
/// Items are the same when their identifiers are. One that was over in `from` (a finished task, an answered question) leaves in
/// silence: the model has been told already.
#[must_use]
pub fn delta(from: &WorkingState, to: &WorkingState) -> Option<String> {
    let mut lines = Vec::new();
    for list in List::ALL {
        let (before, after) = (from.items(list), to.items(list));
        let left = before
            .iter()
            .filter(|item| !item.is_over && named(&after, item.id).is_none());
        lines.extend(left.map(|item| {
            line(
                '-',
                list,
                Seen {
                    label: None,
                    ..*item
                },
            )
        }));
        lines.extend(
            after
                .iter()
                .filter_map(|item| match named(&before, item.id) {
                    None => Some(line('+', list, *item)),
                    Some(former) if former != item => Some(line('~', list, *item)),
                    Some(_) => None,
                }),
        );
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The envelope around a delta. Nothing in the text can end it or begin another one.
#[must_use]
pub fn render(delta: &str, nonce: &str, version: u32) -> String {
    let (nonce, version) = (escape(nonce), version.to_string());
    let head = [
        "<ibex_state nonce=\"",
        &nonce,
        "\" version=\"",
        &version,
        "\">\n",
    ];
    let mut text = head.concat();
    push_escaped(&mut text, delta);
    text.push_str("\n</ibex_state>");
    text
}

fn named<'a, 'b>(items: &'a [Seen<'b>], id: &str) -> Option<&'a Seen<'b>> {
    items.iter().find(|item| item.id == id)
}

/// One change. What the writer chose comes last and stays on the line, so that no text can pass for a label or for another change.
pub(super) fn line(sign: char, list: List, item: Seen<'_>) -> String {
    let mut text = format!("{sign} {}", list.noun());
    if let Some(label) = item.label {
        text.extend([" (", label, ")"]);
    }
    text.push(':');
    let pieces = item.text.split(ends_a_line).map(str::trim);
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        text.extend([" ", piece]);
    }
    text
}

/// Whatever a reader may take for a line's end: also Unicode's own separators.
fn ends_a_line(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}') || (c.is_control() && c != '\t')
}
