//! Walking an object that is read: its keys must differ, compared as they read and not as they are spelled.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::ParseError;
use crate::openai::json::{RawStr, Scanner};

/// Most keys of one object that is read. No client comes near it; it bounds what a hostile body can make the parser keep.
pub const MAX_KEYS: usize = 4_096;

/// Below this many keys every pair is compared; above it they are sorted first.
const FEW_KEYS: usize = 16;

/// A key's text in an error is cut here.
const PATH_KEY_CHARS: usize = 64;

/// An object that is read, for errors; turned into text only when there is one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path {
    Body,
    StreamOptions,
    Message(usize),
    Part(usize, usize),
    Call(usize, usize),
    FunctionCall(usize),
}

impl Path {
    fn text(self) -> String {
        match self {
            Self::Body => "body".to_owned(),
            Self::StreamOptions => "stream_options".to_owned(),
            Self::Message(message) => format!("messages[{message}]"),
            Self::Part(message, part) => format!("messages[{message}].content[{part}]"),
            Self::Call(message, call) => format!("messages[{message}].tool_calls[{call}]"),
            Self::FunctionCall(message) => format!("messages[{message}].function_call"),
        }
    }

    fn of_key(self, key: &[u8]) -> String {
        let key: String = String::from_utf8_lossy(key)
            .chars()
            .take(PATH_KEY_CHARS)
            .collect();
        match self {
            Self::Body => key,
            Self::StreamOptions
            | Self::Message(_)
            | Self::Part(..)
            | Self::Call(..)
            | Self::FunctionCall(_) => format!("{}.{key}", self.text()),
        }
    }
}

/// Walks an object whose keys must differ once they are unescaped; `visit` gets the unescaped key.
pub(super) fn members<'a>(
    scanner: &mut Scanner<'a>,
    path: Path,
    mut visit: impl FnMut(&mut Scanner<'a>, &[u8], RawStr) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let mut keys: SmallVec<[Cow<'a, [u8]>; FEW_KEYS]> = SmallVec::new();
    scanner.object(|scanner, key| {
        if keys.len() == MAX_KEYS {
            return Err(ParseError::TooManyKeys { path: path.text() });
        }
        let name = key.decode_bytes(scanner.source());
        visit(scanner, &name, key)?;
        keys.push(name);
        Ok(())
    })?;
    match repeated(&mut keys) {
        Some(key) => Err(ParseError::DuplicateKey {
            path: path.of_key(key),
        }),
        None => Ok(()),
    }
}

fn repeated<'k>(keys: &'k mut [Cow<'_, [u8]>]) -> Option<&'k [u8]> {
    if keys.len() > FEW_KEYS {
        keys.sort_unstable();
        let pair = keys
            .windows(2)
            .find(|pair| matches!(pair, [one, other] if one == other))?;
        return pair.first().map(|key| key.as_ref());
    }
    let keys: &[_] = keys;
    let mut rest = keys;
    while let Some((key, others)) = rest.split_first() {
        if others.contains(key) {
            return Some(key);
        }
        rest = others;
    }
    None
}
