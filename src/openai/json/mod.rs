//! A strict one-pass JSON scanner (RFC 8259). It records where things stand instead of building a tree, so the bytes can be sent on as
//! they came.
//!
//! It accepts what `serde_json` accepts, neither more nor less; escapes of lone surrogates are legal JSON and pass.

mod plain;
mod text;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use plain::plain;

/// Containers nested deeper than this are refused: `serde_json`'s own limit, and what keeps the recursion below bounded.
pub const MAX_DEPTH: u8 = 127;

/// Why bytes are not acceptable JSON. The texts name positions, never content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// Not UTF-8.
    #[error("the body is not valid UTF-8")]
    NotUtf8,
    /// A byte that the grammar does not allow there.
    #[error("the body is not valid JSON: unexpected character at byte {at}")]
    Syntax {
        /// Offset from the start of the body.
        at: usize,
    },
    /// The text ends inside a value.
    #[error("the body is not valid JSON: it ends too early")]
    Truncated,
    /// Deeper than [`MAX_DEPTH`].
    #[error("the body is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Where a JSON string stands, quotes included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawStr {
    /// The bytes from the opening to behind the closing quote.
    pub range: Range<usize>,
    /// Whether the text contains escapes.
    pub escaped: bool,
    /// Whether one of them could be spelled otherwise (`\\u…`, `\\/`).
    pub odd: bool,
}

impl RawStr {
    /// The bytes between the quotes.
    #[must_use]
    pub fn inner(&self) -> Range<usize> {
        self.range.start.saturating_add(1)..self.range.end.saturating_sub(1)
    }

    /// Whether it is the empty string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner().is_empty()
    }

    /// The text as it stands in `source`, escapes and all.
    #[must_use]
    pub fn raw<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        source.get(self.inner()).unwrap_or_default()
    }

    /// The decoded text. A lone surrogate becomes U+FFFD.
    #[must_use]
    pub fn decode<'a>(&self, source: &'a [u8]) -> Cow<'a, str> {
        let text = String::from_utf8_lossy(self.raw(source));
        if self.escaped {
            Cow::Owned(text::unescape(&text))
        } else {
            text
        }
    }

    /// The decoded text's bytes; borrowed where nothing is escaped.
    #[must_use]
    pub fn decode_bytes<'a>(&self, source: &'a [u8]) -> Cow<'a, [u8]> {
        if self.escaped {
            Cow::Owned(self.decode(source).into_owned().into_bytes())
        } else {
            Cow::Borrowed(self.raw(source))
        }
    }

    /// Hands over, in pieces, the one spelling that all spellings of the same text have in common. As a rule that is how it stands there.
    pub fn respelled(&self, source: &[u8], mut take: impl FnMut(&[u8])) {
        let raw = self.raw(source);
        if self.odd {
            text::respell(&String::from_utf8_lossy(raw), |piece| {
                take(piece.as_bytes());
            });
        } else {
            take(raw);
        }
    }

    /// Whether the decoded text is `text`.
    #[must_use]
    pub fn is(&self, source: &[u8], text: &str) -> bool {
        if self.escaped {
            self.decode(source) == text
        } else {
            self.raw(source) == text.as_bytes()
        }
    }
}

/// A cursor over one JSON text.
#[derive(Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u8,
}

impl<'a> Scanner<'a> {
    /// Starts at the first byte of `bytes`, all of which must be UTF-8.
    ///
    /// # Errors
    /// [`JsonFault::NotUtf8`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, JsonFault> {
        // Many bytes at a time, also where they are not ASCII.
        simdutf8::basic::from_utf8(bytes).map_err(|_| JsonFault::NotUtf8)?;
        Ok(Self::resume(bytes, 0))
    }

    /// Starts at `at`, inside bytes that are known to be UTF-8.
    #[must_use]
    pub fn resume(bytes: &'a [u8], at: usize) -> Self {
        Self {
            bytes,
            at,
            depth: 0,
        }
    }

    /// The bytes it runs over.
    #[must_use]
    pub fn source(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The first byte of the next token; white space before it is passed over.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = self.here()?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Passes over one value of any kind and says where it stood.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn skip(&mut self) -> Result<Range<usize>, JsonFault> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => self.string().map(drop)?,
            Some(b'{') => self.object(|scanner, _| scanner.skip().map(drop))?,
            Some(b'[') => self.array(|scanner, _| scanner.skip().map(drop))?,
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            Some(b'n') => self.literal(b"null")?,
            _ => self.number()?,
        }
        Ok(start..self.at)
    }

    /// Passes over a value that was read before and ends at `end`.
    pub fn pass(&mut self, end: usize) {
        self.at = end;
    }

    /// Passes over a string.
    ///
    /// # Errors
    /// When the next value is no string.
    pub fn string(&mut self) -> Result<RawStr, JsonFault> {
        self.expect(b'"')?;
        let start = self.at - 1;
        let (mut escaped, mut odd) = (false, false);
        loop {
            self.at += plain(self.bytes.get(self.at..).unwrap_or_default());
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(RawStr {
                        range: start..self.at,
                        escaped,
                        odd,
                    });
                }
                Some(b'\\') => {
                    self.at += 1;
                    escaped = true;
                    odd |= self.escape()?;
                }
                // A control character.
                Some(_) => return Err(JsonFault::Syntax { at: self.at }),
                None => return Err(JsonFault::Truncated),
            }
        }
    }

    /// Walks an object: `visit` gets each key and must pass over exactly one value.
    ///
    /// # Errors
    /// When the next value is no object, or what `visit` answers.
    pub fn object<E: From<JsonFault>>(
        &mut self,
        mut visit: impl FnMut(&mut Self, RawStr) -> Result<(), E>,
    ) -> Result<(), E> {
        self.open(b'{')?;
        if self.peek() == Some(b'}') {
            self.close();
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            visit(self, key)?;
            if self.separator(b'}')? {
                return Ok(());
            }
        }
    }

    /// Walks an array: `visit` gets each index and must pass over exactly one value.
    ///
    /// # Errors
    /// When the next value is no array, or what `visit` answers.
    pub fn array<E: From<JsonFault>>(
        &mut self,
        mut visit: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.open(b'[')?;
        if self.peek() == Some(b']') {
            self.close();
            return Ok(());
        }
        let mut index = 0;
        loop {
            visit(self, index)?;
            index += 1;
            if self.separator(b']')? {
                return Ok(());
            }
        }
    }

    /// Nothing but white space may follow.
    ///
    /// # Errors
    /// When something does.
    pub fn end(&mut self) -> Result<(), JsonFault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault()),
        }
    }

    /// Passes over the byte `wanted`, which must be the next token.
    ///
    /// # Errors
    /// When another one stands there.
    pub fn expect(&mut self, wanted: u8) -> Result<(), JsonFault> {
        if self.peek() != Some(wanted) {
            return Err(self.fault());
        }
        self.at += 1;
        Ok(())
    }

    /// After a member: a comma (false) or the end of the container (true).
    pub(super) fn separator(&mut self, end: u8) -> Result<bool, JsonFault> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(byte) if byte == end => {
                self.close();
                Ok(true)
            }
            _ => Err(self.fault()),
        }
    }

    fn open(&mut self, bracket: u8) -> Result<(), JsonFault> {
        self.expect(bracket)?;
        if self.depth == MAX_DEPTH {
            return Err(JsonFault::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.at += 1;
        self.depth = self.depth.saturating_sub(1);
    }

    fn here(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fault(&self) -> JsonFault {
        if self.at < self.bytes.len() {
            JsonFault::Syntax { at: self.at }
        } else {
            JsonFault::Truncated
        }
    }

    /// Behind a backslash; whether the escape is an odd one.
    fn escape(&mut self) -> Result<bool, JsonFault> {
        match self.here() {
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                return Ok(false);
            }
            Some(b'/') => self.at += 1,
            Some(b'u') => {
                let hex = self
                    .bytes
                    .get(self.at + 1..self.at + 5)
                    .ok_or(JsonFault::Truncated)?;
                if !hex.iter().all(u8::is_ascii_hexdigit) {
                    return Err(self.fault());
                }
                self.at += 5;
            }
            _ => return Err(self.fault()),
        }
        Ok(true)
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonFault> {
        for wanted in word {
            if self.here() != Some(*wanted) {
                return Err(self.fault());
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonFault> {
        if self.here() == Some(b'-') {
            self.at += 1;
        }
        if self.here() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.here(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.here(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        while self.here().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.fault())
        } else {
            Ok(())
        }
    }
}
