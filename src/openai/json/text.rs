//! Decoding and respelling of JSON strings.

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

/// Hands over, in pieces, the one spelling that all spellings of a text have in common: an escape only where JSON needs one, the short
/// one where there is one, and small hexadecimal digits.
pub(super) fn respell(raw: &str, mut take: impl FnMut(&str)) {
    let mut rest = raw;
    while let Some((kept, letter, after)) = odd_escape(rest) {
        take(kept);
        rest = after;
        if letter == '/' {
            take("/");
            continue;
        }
        let (character, after) = unicode(rest);
        rest = after;
        match character {
            '"' => take("\\\""),
            '\\' => take("\\\\"),
            '\u{8}' => take("\\b"),
            '\u{c}' => take("\\f"),
            '\n' => take("\\n"),
            '\r' => take("\\r"),
            '\t' => take("\\t"),
            '\0'..='\u{1f}' => take(&format!("\\u{:04x}", u32::from(character))),
            itself => take(itself.encode_utf8(&mut [0; 4])),
        }
    }
    take(rest);
}

/// The first escape that a text can do without or spell otherwise: what stands before it, its letter, and what follows.
fn odd_escape(text: &str) -> Option<(&str, char, &str)> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find('\\')?;
        let letter = text.get(at + 1..)?.chars().next()?;
        if matches!(letter, 'u' | '/') {
            return Some((text.get(..at)?, letter, text.get(at + 2..)?));
        }
        from = at + 2;
    }
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
