//! How long the hashing of one request's messages takes: an agent's conversation of 20 messages with 8 tools, its texts escaped like
//! prose, like code, and not at all.

#![expect(clippy::unwrap_used, reason = "a benchmark harness")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ibex::ids::OrgId;
use ibex::openai::ChatRequest;
use ibex::session::{Chain, SessionSecret};
use serde_json::{Value, json};

const PLAIN: &str = "The quick brown fox jumps over the lazy dog while nobody looks at it. ";
const PROSE: &str = "The carrier will come on Monday, before noon.\nIt then takes the whole pallet to the harbour.\n";
const CODE: &str =
    "fn main() {\n    println!(\"{}\", 1);\n    let path = \"C:\\\\x\";\n\treturn;\n}\n";

fn text(piece: &str, bytes: usize) -> String {
    piece.chars().cycle().take(bytes).collect()
}

/// One turn with a tool call: four messages.
fn turn(piece: &str, i: usize, bytes: usize) -> [Value; 4] {
    let call = json!({"id": format!("call_{i}"), "type": "function",
        "function": {"name": "search", "arguments": "{\"query\": \"harbour\"}"}});
    [
        json!({"role": "user", "content": text(piece, bytes / 4)}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": format!("call_{i}"), "content": text(piece, bytes / 2)}),
        json!({"role": "assistant", "content": text(piece, bytes / 4)}),
    ]
}

fn request(piece: &str, size: usize) -> ChatRequest {
    let tool = |i: usize| {
        json!({"type": "function", "function": {"name": format!("tool_{i}"), "description": text(piece, 200),
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}})
    };
    let tools: Vec<Value> = (0..8).map(tool).collect();
    let body = |bytes: usize| {
        let mut messages = vec![json!({"role": "system", "content": text(piece, bytes)})];
        messages.extend((0..5).flat_map(|i| turn(piece, i, bytes)));
        messages.pop();
        json!({"model": "m", "messages": messages, "tools": tools}).to_string()
    };
    let bytes = (0..).find(|bytes| body(*bytes).len() >= size).unwrap();
    ChatRequest::parse(Bytes::from(body(bytes)), 100).unwrap()
}

fn chain(criterion: &mut Criterion) {
    let (org, secret) = (OrgId::new(), SessionSecret::new(&[7; 32]));
    let mut group = criterion.benchmark_group("chain");
    for (name, piece) in [("plain", PLAIN), ("prose", PROSE), ("code", CODE)] {
        for size in [10_000, 30_000, 300_000] {
            let chat = request(piece, size);
            group.throughput(Throughput::Bytes(chat.body().len() as u64));
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| Chain::of(black_box(&chat), org, &secret))
            });
        }
    }
    group.finish();
}

criterion_group!(benches, chain);
criterion_main!(benches);
