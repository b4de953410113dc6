//! Inject: where the directive and the memory block stand among the client's messages (the `assembled` layout).
//!
//! Pure. Client bytes are never changed, moved or dropped; text goes in as messages of its own or inside an existing content. The only
//! places are the start of the list, behind the leading system messages, and the first user message, so nothing ever comes between a tool
//! call and its answers.

#[cfg(test)]
mod tests;

use crate::config::SystemRole;
use crate::openai::chat::{ChatRequest, Content, Message, Parts, Role};
use crate::openai::edits::{Edits, json_string};
use crate::openai::json::RawStr;
use crate::store::DirectiveMode;

/// Between two texts that share a message.
const BLANK_LINE: &str = "\n\n";

/// What marks a directive inside a user message (contract, section 4).
const DIRECTIVE_MARK: &str = "[DIRECTIVE]: ";

/// A directive and where it goes.
#[derive(Debug, Clone)]
pub struct Directive {
    /// Its text.
    pub text: String,
    /// Its place.
    pub mode: DirectiveMode,
}

/// What is to be injected.
#[derive(Debug, Clone, Default)]
pub struct Injection {
    /// The directive, when there is one.
    pub directive: Option<Directive>,
    /// Directive, safety sentence and memories as one string (ADR-0070).
    pub assembled: String,
    /// Safety sentence and memories alone, for a directive that goes into the user's message.
    pub memory_block: String,
}

/// Which end of a content a text goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Head,
    Tail,
}

/// The edits that put `injection` into `chat`. An empty injection makes none.
///
/// A client's `cache_control` breakpoint in the message or leading run concerned pushes the text behind it: what stands before it stays
/// as it was.
#[must_use]
pub fn inject(chat: &ChatRequest, injection: &Injection, system_role: SystemRole) -> Edits {
    let mut edits = Edits::default();
    let directive = injection
        .directive
        .as_ref()
        .filter(|directive| !directive.text.is_empty());
    match directive {
        Some(Directive {
            text,
            mode: DirectiveMode::UserPrepend,
        }) if first_user(chat).is_some() => {
            user_prepend(&mut edits, chat, text, &injection.memory_block, system_role);
        }
        Some(Directive {
            mode: DirectiveMode::SystemAppend,
            ..
        }) => system(
            &mut edits,
            chat,
            &injection.assembled,
            End::Tail,
            system_role,
        ),
        Some(Directive {
            mode: DirectiveMode::SystemFirst | DirectiveMode::UserPrepend,
            ..
        })
        | None => {
            system(
                &mut edits,
                chat,
                &injection.assembled,
                End::Head,
                system_role,
            );
        }
    }
    edits
}

fn user_prepend(
    edits: &mut Edits,
    chat: &ChatRequest,
    directive: &str,
    memory_block: &str,
    system_role: SystemRole,
) {
    let marked = format!("{DIRECTIVE_MARK}{directive}");
    if system_role == SystemRole::None && !memory_block.is_empty() {
        into_first_user(edits, chat, &format!("{marked}{BLANK_LINE}{memory_block}"));
        return;
    }
    system(edits, chat, memory_block, End::Head, system_role);
    into_first_user(edits, chat, &marked);
}

/// Puts `text` where the model takes instructions.
fn system(edits: &mut Edits, chat: &ChatRequest, text: &str, end: End, system_role: SystemRole) {
    if text.is_empty() {
        return;
    }
    let run = leading_run(chat);
    let end = if run.iter().any(Message::has_cache_control) {
        End::Tail
    } else {
        end
    };
    match system_role {
        SystemRole::None if into_first_user(edits, chat, text) => {}
        SystemRole::Single if into_run(edits, run, text, end) => {}
        SystemRole::Multi | SystemRole::Single | SystemRole::None => {
            own_message(edits, chat, run, text, end)
        }
    }
}

fn leading_run(chat: &ChatRequest) -> &[Message] {
    chat.messages()
        .get(..chat.leading_system())
        .unwrap_or_default()
}

fn first_user(chat: &ChatRequest) -> Option<&Message> {
    let user = chat
        .messages()
        .iter()
        .find(|message| message.role == Role::User)?;
    matches!(user.content, Content::Text(_) | Content::Parts(_)).then_some(user)
}

/// A system message of our own before or behind the leading run.
fn own_message(edits: &mut Edits, chat: &ChatRequest, run: &[Message], text: &str, end: End) {
    let message = format!("{{\"role\":\"system\",\"content\":{}}}", json_string(text));
    if let (End::Tail, Some(last)) = (end, run.last()) {
        edits.insert(last.range.end, format!(",{message}"));
    } else if let Some(first) = chat.messages().first() {
        edits.insert(first.range.start, format!("{message},"));
    } else if let Some(open) = chat.messages_open() {
        edits.insert(open, message);
    }
}

/// Splices into the leading message that stands at `end` of the run, when it can take text there.
fn into_run(edits: &mut Edits, run: &[Message], text: &str, end: End) -> bool {
    let message = match end {
        End::Head => run.first(),
        End::Tail => run.last(),
    };
    // A breakpoint on the message itself covers all of its content: there is no place behind it inside.
    message.is_some_and(|message| !message.cache_control && splice(edits, message, text, end))
}

fn into_first_user(edits: &mut Edits, chat: &ChatRequest, text: &str) -> bool {
    first_user(chat).is_some_and(|message| splice(edits, message, text, End::Head))
}

/// Puts `text` into a message's content; false when the content is neither a string nor an array.
fn splice(edits: &mut Edits, message: &Message, text: &str, end: End) -> bool {
    match &message.content {
        Content::Text(content) => splice_string(edits, content, message.role, text, end),
        Content::Parts(parts) => splice_parts(edits, parts, text, end),
        Content::Absent | Content::Null | Content::Other(_) => return false,
    }
    true
}

fn splice_string(edits: &mut Edits, content: &RawStr, role: Role, text: &str, end: End) {
    // The mark of a user's directive ends with a blank line whatever follows; an empty system message needs none.
    let join = if content.is_empty() && role != Role::User {
        ""
    } else {
        BLANK_LINE
    };
    let (at, text) = match end {
        End::Head => (content.inner().start, format!("{text}{join}")),
        End::Tail => (content.inner().end, format!("{join}{text}")),
    };
    let quoted = json_string(&text);
    let inner = quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or_default();
    edits.insert(at, inner.to_owned());
}

fn splice_parts(edits: &mut Edits, parts: &Parts, text: &str, end: End) {
    let part = |text: &str| format!("{{\"type\":\"text\",\"text\":{}}}", json_string(text));
    if parts.count == 0 {
        edits.insert(parts.head, part(text));
        return;
    }
    match (end, parts.breakpoint) {
        (End::Head, None) => edits.insert(
            parts.head,
            format!("{},", part(&format!("{text}{BLANK_LINE}"))),
        ),
        (End::Head, Some(behind)) if behind < parts.tail => {
            edits.insert(
                behind,
                format!(",{}", part(&format!("{BLANK_LINE}{text}{BLANK_LINE}"))),
            );
        }
        (End::Head, Some(_)) | (End::Tail, _) => edits.insert(
            parts.tail,
            format!(",{}", part(&format!("{BLANK_LINE}{text}"))),
        ),
    }
}
