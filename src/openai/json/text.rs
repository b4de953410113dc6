//! Decoding and encoding of JSON strings.

use std::char::REPLACEMENT_CHARACTER;

/// Resolves the escapes of a string whose syntax has been checked. Half a surrogate pair becomes U+FFFD.
pub(super) fn unescape(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut after = escape.chars();
        let letter = after.next();
        rest = after.as_str();
        match letter {
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('u') => {
                let (character, after) = unicode(rest);
                text.push(character);
                rest = after;
            }
            Some(itself) => text.push(itself),
            None => {}
        }
    }
    text.push_str(rest);
    text
}

/// The character whose code unit `text` starts with, or whose pair of them, and what follows.
fn unicode(text: &str) -> (char, &str) {
    let Some((first, rest)) = code_unit(text) else {
        return (REPLACEMENT_CHARACTER, text);
    };
    if let Some(character) = char::from_u32(first.into()) {
        return (character, rest);
    }
    let second = rest.strip_prefix("\\u").and_then(code_unit);
    if let Some((second, after)) = second
        && let Some(Ok(character)) = char::decode_utf16([first, second]).next()
    {
        return (character, after);
    }
    (REPLACEMENT_CHARACTER, rest)
}

fn code_unit(text: &str) -> Option<(u16, &str)> {
    let (hex, rest) = text.split_at_checked(4)?;
    Some((u16::from_str_radix(hex, 16).ok()?, rest))
}
