//! The canonical form of a message: what two spellings of the same message have in common, for hashing.
//!
//! Values count as they parse: members in the order of their decoded keys, strings by their decoded text (of which the shortest
//! spelling is as good a form as any, and the one that texts come in), numbers by their value. Left out
//! are `null` members, `cache_control` in every object and, of the message itself, what SDKs add when they send an answer back
//! (`refusal`, `annotations`, `audio`, an empty `tool_calls`). Content of one text part counts as that string.
//!
//! ```text
//! true, false, null   t  f  n
//! number              i and 8 bytes; u and 8 bytes above i64; d and the 8 bytes of the double; r, its own bytes and FF when none fits
//! string              s, its text as JSON spells it at the shortest, FF: a byte that UTF-8 has no use for
//! array               [ its values ]
//! object              { and per member k, the key, FF, the value }; a container as a member's value is # and its digest
//! object too wide     o, its length in 8 bytes, its own bytes
//! ```
//!
//! No form is the beginning of another one, so no two messages run together. A digest stands for a nested container because members
//! have to be sorted before they are fed and the form is made in one pass: else a body could make it quadratic in its depth.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use super::{ChatRequest, Content, MAX_KEYS, Message};
use crate::openai::json::{JsonFault, RawStr, Scanner};

/// Behind the text of a string.
const END: u8 = 0xff;
/// Below this, every integer has a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Members of one object that are kept without an allocation.
const FEW_MEMBERS: usize = 8;

/// What a canonical form is fed to: a hash.
pub trait Sink: Sized {
    /// Takes the next bytes. Only their sequence counts, not how it is cut.
    fn feed(&mut self, bytes: &[u8]);
    /// One in the state in which this one began, for a nested value.
    fn nested(&self) -> Self;
    /// The digest of what was fed.
    fn digest(self) -> [u8; 16];
}

impl ChatRequest {
    /// Feeds the canonical form of `message`, which must be one of this request's, to `sink`.
    pub fn canonical(&self, message: &Message, sink: &mut impl Sink) {
        let mut scanner = Scanner::resume(self.body(), message.range.start);
        let read = match scanner.peek() {
            Some(b'{') => object(&mut scanner, sink, |scanner, name, sink| {
                top_member(message, scanner, name, sink)
            }),
            _ => value(&mut scanner, sink),
        };
        debug_assert!(read.is_ok(), "the range was read before");
    }
}

/// A member's value, kept until the members can be sorted.
enum Held {
    Text(RawStr),
    /// A number or a literal.
    Scalar(Range<usize>),
    /// A container.
    Digest([u8; 16]),
}

struct Member<'a> {
    name: Cow<'a, [u8]>,
    value: Held,
}

/// A member of the message itself; nothing for one that is left out.
fn top_member<S: Sink>(
    message: &Message,
    scanner: &mut Scanner<'_>,
    name: &[u8],
    sink: &S,
) -> Result<Option<Held>, JsonFault> {
    let left_out = match name {
        b"refusal" | b"annotations" | b"audio" => true,
        b"tool_calls" => is_empty_array(scanner),
        _ => false,
    };
    if left_out {
        scanner.skip()?;
        return Ok(None);
    }
    // The content is most of a message, and the parser knows already where it ends.
    let text = match &message.content {
        Content::Text(text) if name == b"content" => Some((text.clone(), text.range.end)),
        Content::Parts(parts) if name == b"content" && parts.count == 1 => {
            lone_text(scanner.source(), parts.head)?.map(|text| (text, parts.range.end))
        }
        Content::Absent
        | Content::Null
        | Content::Text(_)
        | Content::Parts(_)
        | Content::Other(_) => None,
    };
    match text {
        Some((text, end)) => {
            scanner.pass(end);
            Ok(Some(Held::Text(text)))
        }
        None => member(scanner, name, sink),
    }
}

fn is_empty_array(scanner: &mut Scanner<'_>) -> bool {
    scanner.peek() == Some(b'[')
        && Scanner::resume(scanner.source(), scanner.position() + 1).peek() == Some(b']')
}

/// The text of the content part at `at`, when text is all that it is.
fn lone_text(source: &[u8], at: usize) -> Result<Option<RawStr>, JsonFault> {
    let mut scanner = Scanner::resume(source, at);
    if scanner.peek() != Some(b'{') {
        return Ok(None);
    }
    let (mut is_text, mut text, mut more) = (false, None, false);
    scanner.object(|scanner, key| {
        let next = scanner.peek();
        match (key.decode_bytes(source).as_ref(), next) {
            (b"cache_control", _) | (_, Some(b'n')) => {}
            (b"type", Some(b'"')) => {
                is_text = scanner.string()?.is(source, "text");
                return Ok(());
            }
            (b"text", Some(b'"')) => {
                text = Some(scanner.string()?);
                return Ok(());
            }
            _ => more = true,
        }
        scanner.skip().map(drop)
    })?;
    Ok(text.filter(|_| is_text && !more))
}

/// A member of any object; nothing for one that is left out.
fn member<S: Sink>(
    scanner: &mut Scanner<'_>,
    name: &[u8],
    sink: &S,
) -> Result<Option<Held>, JsonFault> {
    let next = scanner.peek();
    if name == b"cache_control" || next == Some(b'n') {
        scanner.skip()?;
        return Ok(None);
    }
    Ok(Some(match next {
        Some(b'"') => Held::Text(scanner.string()?),
        Some(b'{' | b'[') => {
            let mut nested = sink.nested();
            value(scanner, &mut nested)?;
            Held::Digest(nested.digest())
        }
        _ => Held::Scalar(scanner.skip()?),
    }))
}

fn value<S: Sink>(scanner: &mut Scanner<'_>, sink: &mut S) -> Result<(), JsonFault> {
    match scanner.peek() {
        Some(b'{') => object(scanner, sink, member)?,
        Some(b'[') => {
            sink.feed(b"[");
            scanner.array(|scanner, _| value(scanner, sink))?;
            sink.feed(b"]");
        }
        Some(b'"') => {
            let text = scanner.string()?;
            string(scanner.source(), &text, sink);
        }
        _ => {
            let range = scanner.skip()?;
            scalar(scanner.source().get(range).unwrap_or_default(), sink);
        }
    }
    Ok(())
}

/// An object whose members `hold` reads.
fn object<'a, S: Sink>(
    scanner: &mut Scanner<'a>,
    sink: &mut S,
    hold: impl Fn(&mut Scanner<'a>, &[u8], &S) -> Result<Option<Held>, JsonFault>,
) -> Result<(), JsonFault> {
    let source = scanner.source();
    let start = scanner.position();
    let mut members: SmallVec<[Member<'a>; FEW_MEMBERS]> = SmallVec::new();
    let mut too_wide = false;
    scanner.object(|scanner, key| {
        let name = key.decode_bytes(source);
        if let Some(value) = hold(scanner, &name, sink)? {
            too_wide |= members.len() == MAX_KEYS;
            if !too_wide {
                members.push(Member { name, value });
            }
        }
        Ok::<_, JsonFault>(())
    })?;
    if too_wide {
        // Nobody spells such an object anew, and what is kept of it has to have an end.
        let raw = source.get(start..scanner.position()).unwrap_or_default();
        tagged(b'o', (raw.len() as u64).to_le_bytes(), sink);
        sink.feed(raw);
        return Ok(());
    }
    // Stable: of a key that stands twice, both count, in their order.
    members.sort_by(|one, other| one.name.cmp(&other.name));
    sink.feed(b"{");
    for Member { name, value } in &members {
        sink.feed(b"k");
        sink.feed(name);
        sink.feed(&[END]);
        match value {
            Held::Text(text) => string(source, text, sink),
            Held::Scalar(range) => scalar(source.get(range.clone()).unwrap_or_default(), sink),
            Held::Digest(digest) => tagged(b'#', *digest, sink),
        }
    }
    sink.feed(b"}");
    Ok(())
}

fn string(source: &[u8], text: &RawStr, sink: &mut impl Sink) {
    sink.feed(b"s");
    text.respelled(source, |piece| sink.feed(piece));
    sink.feed(&[END]);
}

/// A number or a literal.
fn scalar(raw: &[u8], sink: &mut impl Sink) {
    match raw.first() {
        Some(letter @ (b't' | b'f' | b'n')) => sink.feed(&[*letter]),
        _ => number(raw, sink),
    }
}

fn number(raw: &[u8], sink: &mut impl Sink) {
    let text = str::from_utf8(raw).unwrap_or_default();
    if !raw.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        if let Ok(integer) = text.parse::<i64>() {
            return tagged(b'i', integer.to_le_bytes(), sink);
        }
        if let Ok(integer) = text.parse::<u64>() {
            return tagged(b'u', integer.to_le_bytes(), sink);
        }
    } else if let Ok(float) = text.parse::<f64>()
        && float.is_finite()
    {
        if float.fract() == 0.0 && float.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "an integer of 53 bits")]
            return tagged(b'i', (float as i64).to_le_bytes(), sink);
        }
        return tagged(b'd', float.to_bits().to_le_bytes(), sink);
    }
    sink.feed(b"r");
    sink.feed(raw);
    sink.feed(&[END]);
}

/// A form of fixed length: its tag and its bytes.
fn tagged<const N: usize>(tag: u8, bytes: [u8; N], sink: &mut impl Sink) {
    sink.feed(&[tag]);
    sink.feed(&bytes);
}
