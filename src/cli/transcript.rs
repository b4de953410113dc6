//! Chat messages as people read them: who speaks, and what is said.

use std::fmt::Write as _;

use serde_json::Value;

/// Every message of a `messages` array, oldest first, a blank line between two.
#[must_use]
pub(super) fn transcript(messages: &Value) -> String {
    let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
    let mut shown = String::new();
    for message in messages {
        if !shown.is_empty() {
            shown.push_str("\n\n");
        }
        let role = message.get("role").and_then(Value::as_str).unwrap_or("?");
        // Writing to a String cannot fail.
        let _written = write!(shown, "[{role}]\n{}", said(message));
    }
    shown
}

/// The text of a message; what is not text is named.
fn said(message: &Value) -> String {
    let mut lines: Vec<String> = match message.get("content") {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        Some(_) | None => Vec::new(),
    };
    if let Some(calls) = message.get("tool_calls").and_then(Value::as_array) {
        lines.extend(calls.iter().map(|call| format!("(tool call) {call}")));
    }
    lines.join("\n")
}

fn part(part: &Value) -> String {
    match part.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => format!(
            "({})",
            part.get("type").and_then(Value::as_str).unwrap_or("part")
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::transcript;

    #[test]
    fn messages_are_shown_with_their_speaker_and_without_binary_parts() {
        let messages = json!([
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:xyz"}}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c1"}]},
        ]);
        assert_eq!(
            transcript(&messages),
            "[system]\nBe kind.\n\n[user]\nLook:\n(image_url)\n\n[assistant]\n(tool call) {\"id\":\"c1\"}"
        );
        assert_eq!(transcript(&json!("nonsense")), "");
    }
}
