//! What memories become inside a request, and what is left of it when a client sends it back.
//!
//! The first byte chooses; the rest is texts with the byte 0xff between them: directive, what the user says, the kind of a source, memories.

use std::sync::Arc;

use bytes::Bytes;
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::memory::capture::asked_for;
use ibex::memory::{Category, Label, Memory, PartitionKey, Source, Status, own_text};
use ibex::request::context::envelope;
use ibex::request::context::format::{
    Block, FormatInput, HistoryLine, Nonce, format, history, safety_sentence,
};
use ibex::request::context::regions;
use ibex::session::{Elements, Enveloped, SessionNonce};
use ibex::tokens::{Counter, Family, TokenCounts};
use jiff::Timestamp;

use super::input::{Input, texts};

/// Known to whoever writes the texts, which no attacker is.
const NONCE: &str = "Zm9yLXRoZS1mdXp6ZXI";
/// Most memories of one input.
const MOST: usize = 6;
/// Around what is stripped; nothing of ours.
const BEFORE: &str = "Ann sings. ";
const AFTER: &str = " Bea swims.";

/// Runs the harness.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let chosen = input.byte();
    let mut texts = texts(input.rest()).into_iter();
    let mut next = || texts.next().unwrap_or_default();
    let (directive, user, kind) = (next(), next(), next());
    let memories: Vec<Memory> = texts
        .take(MOST)
        .enumerate()
        .map(|(at, text)| memory(at, &text, &kind, chosen))
        .collect();
    stripped(&user);
    stripped(&directive);
    assembled(&directive, &user, &memories);
    stable(chosen, &memories);
    let asked = asked_for(&user);
    assert!(
        asked.iter().all(|text| text.len() <= user.len()),
        "{asked:?}"
    );
}

fn memory(at: usize, text: &str, kind: &str, chosen: u8) -> Memory {
    let id = MemoryId::from_bytes([u8::try_from(at).unwrap_or(0) + 1; 16]);
    let older = MemoryId::from_bytes([0x77; 16]);
    let category = Category::ALL[(at + usize::from(chosen)) % Category::ALL.len()];
    Memory {
        id,
        partition: PartitionKey {
            org: OrgId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            user: None,
        },
        content: text.into(),
        labels: vec![Label {
            label: category,
            confidence: 1.0,
        }],
        confidence: 1.0,
        valid_from: Timestamp::UNIX_EPOCH,
        valid_until: None,
        observed_at: (chosen & 1 != 0).then_some(Timestamp::UNIX_EPOCH),
        source: Source {
            kind: kind.to_owned(),
            ..Source::default()
        },
        metadata: None,
        pinned: false,
        status: Status::Active,
        revision: 0,
        text_revision: 0,
        supersedes: vec![older; usize::from(chosen >> 1 & 7)].into(),
        content_hash: [0; 32],
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        embedding: None,
        tokens: TokenCounts::default(),
    }
}

/// Nothing of ours is left in what was stripped, and no text grows.
fn stripped(text: &str) {
    if let Some(kept) = own_text(text) {
        assert!(kept.len() < text.len());
        assert_eq!(own_text(&kept), None, "once more takes something out");
    }
}

/// The text without its entities. A text without `&` stands for itself.
fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&amp;", "&")
}

/// Cuts `text` behind the first `end`.
fn take<'a>(text: &mut &'a str, end: &str) -> &'a str {
    let (taken, rest) = text
        .split_once(end)
        .unwrap_or_else(|| panic!("no {end:?} in {text:?}"));
    *text = rest;
    taken
}

/// The `assembled` layout: each memory stands in one element, and what it says is what it was.
fn assembled(directive: &str, user: &str, memories: &[Memory]) {
    let nonce = Nonce::given(NONCE).expect("a nonce");
    let blocks: Vec<Block<'_>> = memories
        .iter()
        .map(|memory| Block {
            id: memory.id,
            category: memory.category(),
            content: &memory.content,
        })
        .collect();
    let alone = format(&FormatInput {
        directive: None,
        history: &[],
        memories: &blocks,
        tools: &[],
        nonce: &nonce,
    });
    if blocks.is_empty() {
        assert_eq!(alone, "");
    } else {
        let mut rest = alone
            .strip_prefix(&format!("{}\n\n", safety_sentence(&nonce)))
            .expect("the safety sentence comes first");
        let section = rest;
        let mut ordered: Vec<&Block<'_>> = blocks.iter().collect();
        ordered.sort_by_key(|block| block.category);
        for block in ordered {
            let open = format!(
                "<ibex_memory nonce=\"{NONCE}\" id=\"{}\" category=\"{}\">\n",
                block.id, block.category
            );
            rest = rest.strip_prefix(&open).expect("an element opens");
            let body = take(&mut rest, "\n</ibex_memory>");
            assert!(!body.contains(['<', '>', '"', '\'']), "{body:?}");
            assert_eq!(unescaped(body), block.content);
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        }
        assert_eq!(rest, "");
        let whole = format(&FormatInput {
            directive: Some(directive),
            history: &[HistoryLine {
                role: "user",
                content: user,
            }],
            memories: &blocks,
            tools: &["{}"],
            nonce: &nonce,
        });
        assert!(whole.ends_with(&format!("\n\n{section}\n\n{{}}")));
        let left = own_text(&format!("{BEFORE}{alone}{AFTER}")).expect("something of ours");
        assert_eq!(words(&left), words(&format!("{BEFORE}{AFTER}")));
    }
    one_line_a_message(directive, user);
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// No message of a history can pass for the next one.
fn one_line_a_message(first: &str, second: &str) {
    let line = |role, content| HistoryLine { role, content };
    let lines = [
        line("user", first),
        line("assistant", second),
        line("user", "end"),
    ];
    let text = history(&lines);
    let ends = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let text = text.replace("\r\n", "\n");
    let starts: Vec<&str> = text
        .split(ends)
        .filter(|line| !line.starts_with("  "))
        .collect();
    assert_eq!(starts.len(), lines.len(), "{starts:?}");
}

/// The inside of a JSON string as the text that it stands for.
fn unquoted(pieces: &[Bytes]) -> String {
    let inside = String::from_utf8(pieces.concat()).expect("UTF-8");
    serde_json::from_str(&format!("\"{inside}\"")).expect("the inside of a JSON string")
}

/// The `stable` layout: the same, as the inside of a JSON string, and a memory that leaves takes nothing else with it.
fn stable(chosen: u8, memories: &[Memory]) {
    let family = if chosen & 0x80 == 0 {
        Family::Unknown
    } else {
        Family::O200kBase
    };
    let nonce = SessionNonce::kept(NONCE).expect("a nonce");
    let elements: Vec<_> = COUNTER.with(|counter| {
        memories
            .iter()
            .map(|memory| Arc::new(envelope::element(memory, counter, family)))
            .collect()
    });
    let Some(together) = Elements::new(&elements) else {
        return;
    };
    let together = Arc::new(together);
    let recall = envelope::recall(&nonce, "as1", together.clone(), family);
    let snapshot = envelope::snapshot(&nonce, together, family);
    let open = format!("<ibex_recall nonce=\"{NONCE}\" turn=\"as1\">\n");
    enveloped(&recall, (&open, "</ibex_recall>"), memories);
    let open = format!("<ibex_snapshot nonce=\"{NONCE}\">\n");
    enveloped(&snapshot, (&open, "</ibex_snapshot>"), memories);
    let gone = memories[usize::from(chosen) % memories.len()].id;
    let left: Vec<Memory> = memories.iter().filter(|m| m.id != gone).cloned().collect();
    match recall.without(&[gone]) {
        Some(less) => {
            let open = format!("<ibex_recall nonce=\"{NONCE}\" turn=\"as1\">\n");
            enveloped(&less, (&open, "</ibex_recall>"), &left);
        }
        None => assert!(left.is_empty()),
    }
}

thread_local! {
    static COUNTER: Counter = Counter::new([7; 32], 64);
}

fn enveloped(text: &Enveloped, (open, close): (&str, &str), memories: &[Memory]) {
    let text = unquoted(&text.pieces());
    let mut rest = text
        .strip_prefix(open)
        .and_then(|rest| rest.strip_suffix(close))
        .expect("the envelope's own tags around it");
    for memory in memories {
        let id = memory.id.to_string();
        rest = rest.strip_prefix("<memory ").expect("an element opens");
        let attributes = take(&mut rest, "\">");
        let mut names = Vec::new();
        let quoted = format!("{attributes}\"");
        let mut left = quoted.as_str();
        while !left.is_empty() {
            let (name, value) = (take(&mut left, "=\""), take(&mut left, "\""));
            left = left.strip_prefix(' ').unwrap_or(left);
            assert!(!value.contains(['"', '<', '>']), "{value:?}");
            match name {
                "ref" => assert!(value.len() == 6 && id.ends_with(value)),
                "kind" => assert_eq!(value, memory.category().as_str()),
                "source" => assert_eq!(unescaped(value), memory.source.kind),
                "observed" => assert_eq!(value, "1970-01-01"),
                "supersedes" => assert!(value.split(' ').all(|one| one == "777777")),
                other => panic!("an attribute of somebody's own: {other:?}"),
            }
            names.push(name);
        }
        assert!(names.starts_with(&["ref", "kind"]), "{names:?}");
        let body = take(&mut rest, "</memory>\n");
        assert!(!body.contains(['<', '>']), "{body:?}");
        assert_eq!(unescaped_body(body), *memory.content);
        let element = format!("<memory {attributes}\">{body}</memory>");
        assert_eq!(
            own_text(&format!("{BEFORE}{element}{AFTER}")).as_deref(),
            Some("Ann sings.  Bea swims."),
            "a quoted element is ours"
        );
    }
    assert_eq!(rest, "");
    for ours in [text.clone(), format!("{}\n{text}", regions::FRAMING)] {
        let left = own_text(&format!("{BEFORE}{ours}{AFTER}")).expect("something of ours");
        assert_eq!(words(&left), words(&format!("{BEFORE}{AFTER}")));
    }
}

/// Between tags quotes stand for themselves, so an entity of one was written by somebody.
fn unescaped_body(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}
