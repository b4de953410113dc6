//! Tool pairs: an assistant message that calls tools and the messages that answer it are one unit, with nothing between them and no half
//! missing. Providers refuse anything else, and only after it was paid for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::fault;
use crate::error::FieldError;
use crate::openai::chat::{ChatRequest, Message, MessageFault, Role};

pub(super) fn check(chat: &ChatRequest, faults: &mut Vec<FieldError>) {
    let mut rest = chat.messages();
    let mut index = 0;
    while let Some((message, after)) = rest.split_first() {
        let answers = match message.role {
            Role::Assistant if !message.tool_calls.is_empty() => {
                tool_unit(chat, index, message, after, faults)
            }
            Role::Assistant if message.function_call.is_some() => {
                function_unit(chat, index, message, after, faults)
            }
            Role::Tool => {
                orphaned_answer(index, message, faults);
                0
            }
            Role::Function => {
                fault(
                    faults,
                    format_args!("messages[{index}]"),
                    "INVALID_FORMAT",
                    "answers no function_call right before it",
                );
                0
            }
            Role::System | Role::Developer | Role::User | Role::Assistant | Role::Other => 0,
        };
        index += 1 + answers;
        rest = after.get(answers..).unwrap_or_default();
    }
}

/// Checks the answers that follow a message with tool calls and says how many messages they are.
fn tool_unit(
    chat: &ChatRequest,
    at: usize,
    caller: &Message,
    after: &[Message],
    faults: &mut Vec<FieldError>,
) -> usize {
    let mut calls: BTreeMap<Cow<'_, str>, (usize, bool)> = BTreeMap::new();
    for (call, id) in caller.tool_calls.iter().enumerate() {
        if calls
            .insert(id.decode(chat.body()), (call, false))
            .is_some()
        {
            fault(
                faults,
                format_args!("messages[{at}].tool_calls[{call}].id"),
                "DUPLICATE",
                "repeats the id of another call",
            );
        }
    }
    let answers = after
        .iter()
        .take_while(|message| message.role == Role::Tool)
        .count();
    for (offset, message) in after.iter().take(answers).enumerate() {
        let index = at + 1 + offset;
        let Some(id) = &message.tool_call_id else {
            missing_id(index, message, faults);
            continue;
        };
        match calls.get_mut(&id.decode(chat.body())) {
            Some((_, answered)) if *answered => {
                fault(
                    faults,
                    format_args!("messages[{index}].tool_call_id"),
                    "DUPLICATE",
                    "answers a call that is answered already",
                );
            }
            Some((_, answered)) => *answered = true,
            None => fault(
                faults,
                format_args!("messages[{index}].tool_call_id"),
                "INVALID_FORMAT",
                "answers no call of the assistant message before it",
            ),
        }
    }
    let mut unanswered: Vec<usize> = calls
        .into_values()
        .filter(|(_, answered)| !answered)
        .map(|(call, _)| call)
        .collect();
    unanswered.sort_unstable();
    let text = "has no tool message that answers it right after the assistant message";
    for call in unanswered {
        let field = format_args!("messages[{at}].tool_calls[{call}]");
        fault(faults, field, "REQUIRED", text);
    }
    answers
}

/// The same for the older form: one call, one answer, the same name.
fn function_unit(
    chat: &ChatRequest,
    at: usize,
    caller: &Message,
    after: &[Message],
    faults: &mut Vec<FieldError>,
) -> usize {
    let Some(answer) = after
        .first()
        .filter(|message| message.role == Role::Function)
    else {
        fault(
            faults,
            format_args!("messages[{at}].function_call"),
            "REQUIRED",
            "has no function message that answers it right after",
        );
        return 0;
    };
    let name = |raw: &Option<crate::openai::json::RawStr>| {
        raw.as_ref()
            .map(|name| name.decode(chat.body()).into_owned())
    };
    if name(&answer.name) != name(&caller.function_call) {
        fault(
            faults,
            format_args!("messages[{}].name", at + 1),
            "INVALID_FORMAT",
            "is not the function that was called",
        );
    }
    1
}

fn orphaned_answer(index: usize, message: &Message, faults: &mut Vec<FieldError>) {
    if message.tool_call_id.is_none() {
        missing_id(index, message, faults);
    } else {
        fault(
            faults,
            format_args!("messages[{index}].tool_call_id"),
            "INVALID_FORMAT",
            "answers no tool call right before it",
        );
    }
}

fn missing_id(index: usize, message: &Message, faults: &mut Vec<FieldError>) {
    if !message.faults.contains(&MessageFault::AnswerIdType) {
        fault(
            faults,
            format_args!("messages[{index}].tool_call_id"),
            "REQUIRED",
            "is required",
        );
    }
}
