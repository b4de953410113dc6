//! Throughput of finding and redacting over ordinary, digit-heavy and hostile texts.
#![allow(
    missing_docs,
    reason = "the macros of criterion generate undocumented items"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ibex::memory::pii::{DEFAULT_THRESHOLD, KindSet, find, redact};

const CHAT: &str = "I moved to Lisbon last spring and work as a nurse at a children's hospital. My partner's \
name is Rui, we have two cats, and I usually run along the river on Sunday mornings before the heat sets in. \
Please keep answers short, I read them on the train between 7:30 and 8:10. Last week I asked about a \
recipe for caldo verde without chorizo, which turned out well, so remember that I don't eat pork. ";
const CHAT_PII: &str = "My number is +44 20 7946 0018 and my mail is jane.doe@example.com, \
card 4242 4242 4242 4242. ";
const MIXED: &str = "我喜欢爬山，去年三月去了黄山。Die Übergabe ist am Freitag um zehn, bitte den Schlüssel mitbringen. Ça va bien, merci. ";
const NUMBERS: &str = "2026-11-29 18:30:01 req 7318204459 took 123.45 ms, 10.0.0.12 -> 93.184.216.34:443, order 4155 5501 23, \
sum 1 299 000,50, id 3f0a9c11-7be2-4d10-9046-202555014312, 4242 4242 4242 4243; 52.520008, 13.404954; ";

fn repeated(piece: &str, bytes: usize) -> String {
    piece.chars().cycle().take(bytes).collect()
}

fn bench(criterion: &mut Criterion) {
    // The tables are built on first use.
    black_box(find("warm up 1234567 a@b"));
    let mut group = criterion.benchmark_group("find");
    let kilo = 1_000;
    let hostile = 10_000;
    for (name, text) in [
        ("chat_1kB", repeated(CHAT, kilo)),
        ("multilingual_1k_chars", repeated(MIXED, kilo)),
        ("numbers_1kB", repeated(NUMBERS, kilo)),
        ("at_10kB", repeated("@", hostile)),
        ("digits_10kB", repeated("7", hostile)),
        ("single_digits_10kB", repeated("4 ", hostile)),
        ("digit_pairs_10kB", repeated("06 12 ", hostile)),
        ("sk_10kB", repeated("sk-", hostile)),
        ("eyJ_10kB", repeated("eyJ", hostile)),
        ("eyJ_dots_10kB", repeated("eyJhbGciOiJIUzI1NiJ9.", hostile)),
        ("colons_10kB", repeated("2001:", hostile)),
        ("dots_10kB", repeated("1.", hostile)),
        ("pem_10kB", repeated("-----BEGIN PRIVATE KEY-----", hostile)),
        ("password_is_10kB", repeated("password is ", hostile)),
        ("phone_10kB", repeated("phone 1234567 ", hostile)),
        ("urls_10kB", repeated("x://a:b", hostile)),
        ("a_at_a_10kB", repeated("a@a.", hostile)),
        ("iban_10kB", repeated("DE89 3704 ", hostile)),
    ] {
        group.throughput(Throughput::Bytes(u64::try_from(text.len()).unwrap_or(0)));
        group.bench_function(name, |bencher| bencher.iter(|| find(black_box(&text))));
    }
    group.finish();
    let text = format!("{}{CHAT_PII}", repeated(CHAT, 900));
    criterion.bench_function("redact/chat_with_pii_1kB", |bencher| {
        bencher.iter(|| redact(black_box(&text), DEFAULT_THRESHOLD, KindSet::ALL));
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
