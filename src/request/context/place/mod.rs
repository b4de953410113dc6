//! Place: where the frozen prefix and the turns' blocks stand among the client's messages (the `stable` layout).
//!
//! Pure: the same request and the same frozen text give the same bytes. Client bytes are never changed, moved or dropped. A block stands
//! at the user message that opened its turn, so nothing ever comes between a tool call and its answers.

use bytes::Bytes;

use crate::config::{RecallPlace, SystemRole};
use crate::openai::chat::{ChatRequest, Content, Message, Role};
use crate::openai::edits::Edits;
use crate::providers::ModelProfile;
use crate::session::{Block, Opening};

use super::envelope;
use super::regions::{BLANK_LINE, RegionA, Section, SessionLine, SnapshotText};

/// What goes into one request.
#[derive(Debug, Clone, Copy)]
pub struct Frozen<'a> {
    /// Region A.
    pub opening: &'a Opening,
    /// Blocks with the place of their user message, in order.
    pub blocks: &'a [(usize, &'a Block)],
}

/// The edits that put `frozen` into `chat`.
#[must_use]
pub fn build(chat: &ChatRequest, frozen: &Frozen<'_>, profile: ModelProfile) -> Edits {
    let mut edits = Edits::default();
    prefix(&mut edits, chat, frozen.opening, profile.system_role);
    for (place, block) in frozen.blocks {
        if let Some(message) = chat.messages().get(*place) {
            turn(&mut edits, message, block, recall_place(profile));
        }
    }
    edits
}

/// Whether a block can stand at this message: a user's, with a content that takes text.
#[must_use]
pub fn takes_block(message: &Message, profile: ModelProfile) -> bool {
    let recall = recall_place(profile);
    message.role == Role::User && (recall == RecallPlace::Separate || takes_text(message))
}

/// How blocks stand for a model: what has no system messages has strict turns as well.
#[must_use]
pub fn recall_place(profile: ModelProfile) -> RecallPlace {
    match profile.system_role {
        SystemRole::None => RecallPlace::Inline,
        SystemRole::Multi | SystemRole::Single => profile.recall,
    }
}

/// The pieces behind the client's system text.
fn tail(opening: &Opening) -> Vec<Bytes> {
    let mut section = Section::<RegionA>::default();
    section.put(&SessionLine::session_line([opening.line.clone()]));
    if let Some(snapshot) = &opening.snapshot {
        section.put(&SnapshotText::snapshot(snapshot.pieces()));
    }
    section.pieces()
}

fn prefix(edits: &mut Edits, chat: &ChatRequest, opening: &Opening, system_role: SystemRole) {
    let head = vec![opening.head.json().clone()];
    let run = leading_run(chat);
    let (first, last) = match (system_role, run) {
        (SystemRole::None, _) => {
            if let Some(user) = first_user(chat) {
                splice_head(edits, user, &joined([head, tail(opening)]));
            } else {
                own(edits, chat, "user", joined([head, tail(opening)]));
            }
            return;
        }
        (SystemRole::Multi | SystemRole::Single, [first, ..]) => {
            (first, run.last().unwrap_or(first))
        }
        (SystemRole::Multi | SystemRole::Single, []) => {
            own(edits, chat, "system", joined([head, tail(opening)]));
            return;
        }
    };
    let role = role_of(first);
    match system_role {
        SystemRole::Single if takes_text(first) && takes_text(last) => {
            splice_head(edits, first, &head);
            splice_tail(edits, last, &tail(opening));
        }
        SystemRole::Single | SystemRole::Multi | SystemRole::None => {
            before(edits, first, role, head);
            behind(edits, last, role, tail(opening));
        }
    }
}

fn turn(edits: &mut Edits, message: &Message, block: &Block, recall: RecallPlace) {
    let pieces = envelope::pieces(block);
    match recall {
        // At the user's own authority: a recalled text must not rank above the user.
        RecallPlace::Separate => before(edits, message, "user", pieces),
        RecallPlace::Inline => splice_head(edits, message, &pieces),
    }
}

fn leading_run(chat: &ChatRequest) -> &[Message] {
    chat.messages()
        .get(..chat.leading_system())
        .unwrap_or_default()
}

/// The user message that opens the conversation. One that comes later is not it: what stands before it was sent without.
fn first_user(chat: &ChatRequest) -> Option<&Message> {
    let first = chat.messages().get(chat.leading_system())?;
    (first.role == Role::User && takes_text(first)).then_some(first)
}

/// A string, or an array that has a part to stand beside.
const fn takes_text(message: &Message) -> bool {
    match &message.content {
        Content::Text(_) => true,
        Content::Parts(parts) => parts.count > 0,
        Content::Absent | Content::Null | Content::Other(_) => false,
    }
}

/// Providers refuse `system` beside `developer`, so ours follow the client's.
fn role_of(message: &Message) -> &'static str {
    if message.role == Role::Developer {
        "developer"
    } else {
        "system"
    }
}

fn joined(parts: [Vec<Bytes>; 2]) -> Vec<Bytes> {
    let [mut head, tail] = parts;
    head.push(Bytes::from_static(BLANK_LINE.as_bytes()));
    head.extend(tail);
    head
}

/// A message of ours, in pieces.
fn message(edits: &mut Edits, at: usize, comma_first: bool, role: &str, pieces: Vec<Bytes>) {
    let comma = if comma_first { "," } else { "" };
    edits.insert(at, format!("{comma}{{\"role\":\"{role}\",\"content\":\""));
    put(edits, at, pieces);
    edits.insert(at, if comma_first { "\"}" } else { "\"}," });
}

fn put(edits: &mut Edits, at: usize, pieces: impl IntoIterator<Item = Bytes>) {
    for piece in pieces {
        edits.insert(at, piece);
    }
}

fn before(edits: &mut Edits, theirs: &Message, role: &str, pieces: Vec<Bytes>) {
    message(edits, theirs.range.start, false, role, pieces);
}

fn behind(edits: &mut Edits, theirs: &Message, role: &str, pieces: Vec<Bytes>) {
    message(edits, theirs.range.end, true, role, pieces);
}

/// A message of ours before all others.
fn own(edits: &mut Edits, chat: &ChatRequest, role: &str, pieces: Vec<Bytes>) {
    match (chat.messages().first(), chat.messages_open()) {
        (Some(first), _) => before(edits, first, role, pieces),
        (None, Some(open)) => {
            edits.insert(open, format!("{{\"role\":\"{role}\",\"content\":\""));
            put(edits, open, pieces);
            edits.insert(open, "\"}");
        }
        (None, None) => {}
    }
}

/// Before everything else in a content that takes text. Existing parts are not touched.
fn splice_head(edits: &mut Edits, theirs: &Message, pieces: &[Bytes]) {
    match &theirs.content {
        Content::Text(text) => {
            let at = text.inner().start;
            put(edits, at, pieces.iter().cloned());
            edits.insert(at, BLANK_LINE);
        }
        Content::Parts(parts) => {
            let at = parts.head;
            edits.insert(at, "{\"type\":\"text\",\"text\":\"");
            put(edits, at, pieces.iter().cloned());
            edits.insert(at, [BLANK_LINE, "\"},"].concat());
        }
        Content::Absent | Content::Null | Content::Other(_) => {}
    }
}

/// Behind everything else in a content that takes text.
fn splice_tail(edits: &mut Edits, theirs: &Message, pieces: &[Bytes]) {
    match &theirs.content {
        Content::Text(text) => {
            let at = text.inner().end;
            edits.insert(at, BLANK_LINE);
            put(edits, at, pieces.iter().cloned());
        }
        Content::Parts(parts) => {
            let at = parts.tail;
            edits.insert(at, [",{\"type\":\"text\",\"text\":\"", BLANK_LINE].concat());
            put(edits, at, pieces.iter().cloned());
            edits.insert(at, "\"}");
        }
        Content::Absent | Content::Null | Content::Other(_) => {}
    }
}

#[cfg(test)]
mod tests;
