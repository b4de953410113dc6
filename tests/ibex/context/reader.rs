//! An independent reader of what went out: the injected message, and the memories inside it.

use serde_json::Value;

/// A memory as a model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recalled {
    pub(crate) id: String,
    pub(crate) category: String,
    pub(crate) content: String,
}

/// The text between two marks.
pub(crate) fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<(&'t str, &'t str)> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after)
}

/// The nonce that the safety sentence names.
pub(crate) fn nonce(text: &str) -> &str {
    between(text, "tags whose nonce is \"", "\"")
        .expect("a safety sentence")
        .0
}

/// Reads every element that bears the nonce of the text's own safety sentence.
pub(crate) fn recalled(text: &str) -> Vec<Recalled> {
    let opening = format!("<ibex_memory nonce=\"{}\" id=\"", nonce(text));
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((id, after)) = between(rest, &opening, "\" category=\"") {
        let (category, after) = after.split_once("\">\n").expect("an opening tag ends");
        let (content, after) = after
            .split_once("\n</ibex_memory>")
            .expect("an element ends");
        found.push(Recalled {
            id: id.to_owned(),
            category: category.to_owned(),
            content: unescape(content),
        });
        rest = after;
    }
    assert_eq!(
        text.matches("<ibex_memory").count(),
        found.len(),
        "every opening tag is one of ours: {text}"
    );
    assert_eq!(
        text.matches("</ibex_memory").count(),
        found.len(),
        "and so is every closing one: {text}"
    );
    found
}

fn unescape(text: &str) -> String {
    // The ampersand last, so that nothing is read twice.
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (entity, plain)| {
        text.replace(entity, plain)
    })
}

/// The text of the one system message that was put in front of the client's first message, whose bytes start with `first`. Everything else
/// must be the client's own bytes.
#[track_caller]
pub(crate) fn put_in_front<'a>(client: &str, first: &str, sent: &'a [u8]) -> String {
    let sent = std::str::from_utf8(sent).expect("UTF-8");
    let (head, tail) = client.split_at(client.find(first).expect("the first message"));
    let message: &'a str = sent
        .strip_prefix(head)
        .and_then(|rest| rest.strip_suffix(tail))
        .and_then(|message| message.strip_suffix(','))
        .unwrap_or_else(|| panic!("other bytes than the client's around the message: {sent}"));
    let value: Value = serde_json::from_str(message).expect("one JSON object");
    let object = value.as_object().expect("an object");
    assert_eq!(object.keys().collect::<Vec<_>>(), ["content", "role"]);
    assert_eq!(object["role"], "system");
    object["content"].as_str().expect("a text").to_owned()
}
