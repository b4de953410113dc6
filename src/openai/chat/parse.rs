//! The one pass over a chat request's body.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::members::{Path, members};
use super::{
    ChatRequest, Content, Field, Message, MessageFault, MessageList, ParseError, Parts, Role,
    StreamOptions, Tools,
};
use crate::openai::json::{JsonFault, RawStr, Scanner};

pub(super) fn read(body: Bytes, max_messages: usize) -> Result<ChatRequest, ParseError> {
    let mut request = ChatRequest {
        body: Bytes::new(),
        fields: Vec::with_capacity(16),
        model: None,
        messages: None,
        tools: None,
        stream_options: None,
    };
    read_body(&body, |scanner, name, key| {
        let value = match name {
            b"model" => {
                let value = scanner.peek() == Some(b'"');
                if value {
                    string_value(scanner, &mut request.model)?
                } else {
                    scanner.skip()?
                }
            }
            b"messages" if scanner.peek() == Some(b'[') => {
                let (range, list) = messages(scanner, max_messages)?;
                request.messages = Some(list);
                range
            }
            b"tools" if scanner.peek() == Some(b'[') => {
                let tools = tools(scanner)?;
                let range = tools.range.clone();
                request.tools = Some(tools);
                range
            }
            b"stream_options" => {
                let options = stream_options(scanner)?;
                let range = options.range.clone();
                request.stream_options = Some(options);
                range
            }
            _ => scanner.skip()?,
        };
        request.fields.push(Field { key, value });
        Ok(())
    })?;
    request.body = body;
    Ok(request)
}

/// Walks the top level of a body, which must be one object and nothing else.
pub(in crate::openai) fn read_body<'a>(
    body: &'a [u8],
    visit: impl FnMut(&mut Scanner<'a>, &[u8], RawStr) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let mut scanner = Scanner::new(body)?;
    if !matches!(scanner.peek(), Some(b'{') | None) {
        // A syntax fault is the better answer where there is one.
        scanner.skip()?;
        scanner.end()?;
        return Err(ParseError::NotAnObject);
    }
    members(&mut scanner, Path::Body, visit)?;
    Ok(scanner.end()?)
}

pub(in crate::openai) fn string_value(
    scanner: &mut Scanner<'_>,
    into: &mut Option<String>,
) -> Result<Range<usize>, JsonFault> {
    let text = scanner.string()?;
    *into = Some(text.decode(scanner.source()).into_owned());
    Ok(text.range)
}

fn tools(scanner: &mut Scanner<'_>) -> Result<Tools, ParseError> {
    let mut count = 0;
    let start = scanner.position();
    scanner.array(|scanner, index| {
        count = index + 1;
        scanner.skip().map(drop)
    })?;
    Ok(Tools {
        range: start..scanner.position(),
        count,
    })
}

fn stream_options(scanner: &mut Scanner<'_>) -> Result<StreamOptions, ParseError> {
    if scanner.peek() != Some(b'{') {
        let range = scanner.skip()?;
        return Ok(StreamOptions {
            range,
            is_object: false,
            is_empty: false,
            include_usage: None,
        });
    }
    let start = scanner.position();
    let (mut include_usage, mut is_empty) = (None, true);
    members(scanner, Path::StreamOptions, |scanner, name, _| {
        is_empty = false;
        let value = scanner.skip()?;
        if name == b"include_usage" {
            include_usage = Some(value);
        }
        Ok(())
    })?;
    Ok(StreamOptions {
        range: start..scanner.position(),
        is_object: true,
        is_empty,
        include_usage,
    })
}

fn messages(
    scanner: &mut Scanner<'_>,
    max_messages: usize,
) -> Result<(Range<usize>, MessageList), ParseError> {
    let start = scanner.position();
    let mut list = MessageList {
        open: start + 1,
        ..MessageList::default()
    };
    scanner.array(|scanner, index| {
        list.count = index + 1;
        if index < max_messages {
            list.kept.push(message(scanner, index)?);
        } else {
            scanner.skip()?;
        }
        Ok::<_, ParseError>(())
    })?;
    Ok((start..scanner.position(), list))
}

fn message(scanner: &mut Scanner<'_>, index: usize) -> Result<Message, ParseError> {
    let mut message = Message::default();
    if scanner.peek() != Some(b'{') {
        message.range = scanner.skip()?;
        message.faults.push(MessageFault::NotAnObject);
        return Ok(message);
    }
    let start = scanner.position();
    let mut has_role = false;
    members(scanner, Path::Message(index), |scanner, name, _| {
        let next = scanner.peek();
        match name {
            b"role" => {
                has_role = true;
                role(scanner, &mut message)?;
            }
            b"content" => message.content = content(scanner, index)?,
            b"tool_calls" => tool_calls(scanner, index, &mut message)?,
            b"tool_call_id" if next == Some(b'"') => message.tool_call_id = Some(scanner.string()?),
            b"tool_call_id" if next != Some(b'n') => {
                scanner.skip()?;
                message.faults.push(MessageFault::AnswerIdType);
            }
            b"function_call" if next != Some(b'n') => function_call(scanner, index, &mut message)?,
            b"name" if next == Some(b'"') => message.name = Some(scanner.string()?),
            b"cache_control" => {
                message.cache_control = next != Some(b'n');
                scanner.skip()?;
            }
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    if !has_role {
        message.faults.push(MessageFault::NoRole);
    }
    message.range = start..scanner.position();
    Ok(message)
}

fn role(scanner: &mut Scanner<'_>, message: &mut Message) -> Result<(), JsonFault> {
    if scanner.peek() == Some(b'"') {
        let name = scanner.string()?;
        message.role = Role::parse(&name.decode(scanner.source()));
    } else {
        scanner.skip()?;
        message.faults.push(MessageFault::RoleType);
    }
    Ok(())
}

fn content(scanner: &mut Scanner<'_>, message: usize) -> Result<Content, ParseError> {
    Ok(match scanner.peek() {
        Some(b'"') => Content::Text(scanner.string()?),
        Some(b'[') => Content::Parts(parts(scanner, message)?),
        Some(b'n') => {
            scanner.skip()?;
            Content::Null
        }
        _ => Content::Other(scanner.skip()?),
    })
}

fn parts(scanner: &mut Scanner<'_>, message: usize) -> Result<Parts, ParseError> {
    let start = scanner.position();
    let mut parts = Parts {
        range: start..start,
        head: start + 1,
        tail: start + 1,
        count: 0,
        media: 0,
        breakpoint: None,
    };
    scanner.array(|scanner, index| {
        let is_object = scanner.peek() == Some(b'{');
        if index == 0 {
            parts.head = scanner.position();
        }
        let mut is_breakpoint = false;
        if is_object {
            members(scanner, Path::Part(message, index), |scanner, name, _| {
                let next = scanner.peek();
                match name {
                    b"type" if next == Some(b'"') => {
                        let kind = scanner.string()?;
                        parts.media += usize::from(is_media(&kind.decode(scanner.source())));
                        return Ok(());
                    }
                    b"cache_control" => is_breakpoint = next != Some(b'n'),
                    _ => {}
                }
                scanner.skip()?;
                Ok(())
            })?;
        } else {
            scanner.skip()?;
        }
        parts.count += 1;
        parts.tail = scanner.position();
        if is_breakpoint {
            parts.breakpoint = Some(parts.tail);
        }
        Ok::<_, ParseError>(())
    })?;
    parts.range.end = scanner.position();
    Ok(parts)
}

/// Part types whose size says nothing about their tokens.
fn is_media(kind: &str) -> bool {
    matches!(
        kind,
        "image_url"
            | "image"
            | "input_image"
            | "input_audio"
            | "audio_url"
            | "video_url"
            | "input_video"
            | "file"
            | "input_file"
    )
}

fn tool_calls(
    scanner: &mut Scanner<'_>,
    index: usize,
    message: &mut Message,
) -> Result<(), ParseError> {
    match scanner.peek() {
        Some(b'[') => {}
        next => {
            scanner.skip()?;
            if next != Some(b'n') {
                message.faults.push(MessageFault::CallsType);
            }
            return Ok(());
        }
    }
    let mut without_id = None;
    scanner.array(|scanner, call| {
        let mut id = None;
        if scanner.peek() == Some(b'{') {
            members(scanner, Path::Call(index, call), |scanner, name, _| {
                if name == b"id" && scanner.peek() == Some(b'"') {
                    id = Some(scanner.string()?);
                } else {
                    scanner.skip()?;
                }
                Ok(())
            })?;
        } else {
            scanner.skip()?;
        }
        match id {
            Some(id) => message.tool_calls.push(id),
            None => without_id = without_id.or(Some(call)),
        }
        Ok::<_, ParseError>(())
    })?;
    message
        .faults
        .extend(without_id.map(|index| MessageFault::CallId { index }));
    Ok(())
}

fn function_call(
    scanner: &mut Scanner<'_>,
    index: usize,
    message: &mut Message,
) -> Result<(), ParseError> {
    if scanner.peek() == Some(b'{') {
        members(scanner, Path::FunctionCall(index), |scanner, name, _| {
            if name == b"name" && scanner.peek() == Some(b'"') {
                message.function_call = Some(scanner.string()?);
            } else {
                scanner.skip()?;
            }
            Ok(())
        })?;
    } else {
        scanner.skip()?;
    }
    if message.function_call.is_none() {
        message.faults.push(MessageFault::FunctionName);
    }
    Ok(())
}

/// The decoded text of every text part, in order. The range was checked when the body was read.
pub(super) fn part_texts<'a>(body: &'a [u8], parts: &Parts) -> Vec<Cow<'a, str>> {
    let mut texts = Vec::new();
    let mut scanner = Scanner::resume(body, parts.range.start);
    let read: Result<(), JsonFault> = scanner.array(|scanner, _| {
        if scanner.peek() != Some(b'{') {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            if scanner.peek() != Some(b'"') || !key.is(body, "text") {
                return scanner.skip().map(drop);
            }
            texts.push(scanner.string()?.decode(body));
            Ok(())
        })
    });
    debug_assert!(read.is_ok(), "the range was read before");
    texts
}
