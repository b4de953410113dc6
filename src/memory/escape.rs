//! Escaping: how a memory's text is made harmless inside markup. Counting at write time and formatting at request time share it.

use std::borrow::Cow;

/// The characters that mean something in markup.
const SPECIAL: [char; 5] = ['&', '<', '>', '"', '\''];

/// Escapes text for the inside of an element or an attribute, exactly as Python's `html.escape(text, quote=True)` does.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(SPECIAL) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8 + 8);
    push_escaped(&mut out, text);
    Cow::Owned(out)
}

pub(crate) fn push_escaped(out: &mut String, text: &str) {
    for run in text.split_inclusive(SPECIAL) {
        out.push_str(run.strip_suffix(SPECIAL).unwrap_or(run));
        out.push_str(run.chars().next_back().map_or("", entity));
    }
}

/// What stands for a special character; nothing for the others.
const fn entity(special: char) -> &'static str {
    match special {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#x27;",
        _ => "",
    }
}
