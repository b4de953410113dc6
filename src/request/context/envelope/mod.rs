//! Envelopes of the `stable` layout: recalled memories and the snapshot as data, under the session's nonce.
//!
//! Every character that could end or forge a tag is escaped, so no memory can close its own envelope. An envelope is written once and
//! kept as it is; when a memory leaves it, nothing but that memory's bytes goes.

use std::sync::Arc;

use jiff::Timestamp;

use super::regions::{RecallText, RegionB, Section, StateText};
use crate::ids::MemoryId;
use crate::memory::{Memory, Source, push_escaped};
use crate::openai::edits::json_inner;
use crate::session::{Block, Element, Elements, Enveloped, SessionNonce};
use crate::tokens::{Counter, Family, Tally};

/// Most tokens of an envelope without its memories, in tokens of either exact family: nonce and assembly id, a token a byte, and the tags.
pub const ENVELOPE_TOKENS: u32 = 64;
/// Most tokens that a memory's element adds to its escaped content: reference and time, a token a byte, and the tags.
pub const ELEMENT_TOKENS: u32 = 40;

/// Replaced memories that an element names: the newest of what it replaced may stand in an earlier block.
const MOST_NAMED: usize = 3;

/// The recalled memories of a turn. `assembly` tells blocks of one session apart.
#[must_use]
pub fn recall(
    nonce: &SessionNonce,
    assembly: &str,
    elements: Arc<Elements>,
    family: Family,
) -> Enveloped {
    let nonce = nonce.as_str();
    // Both are URL-safe base64: nothing in them needs escaping.
    let open = format!("<ibex_recall nonce=\\\"{nonce}\\\" turn=\\\"{assembly}\\\">\\n");
    Enveloped::new(open, elements, "</ibex_recall>", tags(family))
}

/// The memories that a session opens with.
#[must_use]
pub fn snapshot(nonce: &SessionNonce, elements: Arc<Elements>, family: Family) -> Enveloped {
    let open = format!("<ibex_snapshot nonce=\\\"{}\\\">\\n", nonce.as_str());
    Enveloped::new(open, elements, "</ibex_snapshot>", tags(family))
}

/// What the tags of an envelope cost at most.
const fn tags(family: Family) -> Tally {
    Tally::given(family, ENVELOPE_TOKENS)
}

/// One memory, ready for any envelope.
#[must_use]
pub fn element(memory: &Memory, counter: &Counter, family: Family) -> Element {
    let text = written(memory);
    Element {
        id: memory.id,
        cost: Tally::of(counter, memory.partition.org, family, &text),
        json: json_inner(&text).into(),
    }
}

/// Where it comes from and when it was learnt travel with a memory; the rest of its record does not.
fn written(memory: &Memory) -> String {
    let mut out = String::with_capacity(memory.content.len() + 64);
    out.push_str("<memory ref=\"");
    out.push_str(&reference(memory.id));
    out.push_str("\" kind=\"");
    out.push_str(memory.category().as_str());
    if memory.source.kind != Source::default().kind {
        out.push_str("\" source=\"");
        push_escaped(&mut out, &memory.source.kind);
    }
    if let Some(observed) = memory.observed_at {
        out.push_str("\" observed=\"");
        out.push_str(&day(observed));
    }
    for (i, older) in memory.supersedes.iter().take(MOST_NAMED).enumerate() {
        out.push_str(if i == 0 { "\" supersedes=\"" } else { " " });
        out.push_str(&reference(*older));
    }
    out.push_str("\">");
    push_body(&mut out, &memory.content);
    out.push_str("</memory>\n");
    out
}

/// Most tokens that naming what a memory replaced adds: six digits each, a token a digit, and the attribute.
#[must_use]
pub fn named_tokens(memory: &Memory) -> u32 {
    match memory.supersedes.len().min(MOST_NAMED) {
        0 => 0,
        named => 6 + 8 * u32::try_from(named).unwrap_or(u32::MAX),
    }
}

/// Escapes what could open or close a tag. Quotes mean nothing between tags, and escaped they would cost tokens and legibility.
fn push_body(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>']) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let mut after = tail.chars();
        out.push_str(match after.next() {
            Some('&') => "&amp;",
            Some('<') => "&lt;",
            _ => "&gt;",
        });
        rest = after.as_str();
    }
    out.push_str(rest);
}

/// The last six digits of the identifier: enough to tell a session's memories apart, at a fifth of the tokens.
fn reference(id: MemoryId) -> String {
    let text = id.to_string();
    text.get(text.len().saturating_sub(6)..)
        .unwrap_or_default()
        .to_owned()
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// A block's pieces in the order of their classes, as the inside of one JSON string.
#[must_use]
pub fn pieces(block: &Block) -> Vec<bytes::Bytes> {
    let mut section = Section::<RegionB>::default();
    if let Some(recall) = block.recall() {
        section.put(&RecallText::recall(recall.pieces()));
    }
    if let Some(state) = block.state() {
        section.put(&StateText::working_state([state.json.clone()]));
    }
    section.pieces()
}

#[cfg(test)]
mod tests;
