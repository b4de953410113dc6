//! Tests of the whole engine: the corpus with recall and precision, texts that must stay, and
//! properties that hold for any text.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

const CORPUS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/corpora/pii.jsonl"
));
const HELD_RECALL: f64 = 0.98;
const HELD_PRECISION: f64 = 0.97;

#[derive(Deserialize)]
struct Entry {
    id: String,
    part: String,
    text: String,
    expect: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    kind: String,
    text: String,
}

fn expand(text: &str) -> String {
    fakes::all()
        .iter()
        .fold(text.to_owned(), |text, (name, secret)| {
            text.replace(&format!("{{{{{name}}}}}"), secret)
        })
}

fn corpus() -> Vec<Entry> {
    CORPUS
        .lines()
        .map(|line| {
            let mut entry: Entry = serde_json::from_str(line).unwrap();
            entry.text = expand(&entry.text);
            entry
                .expect
                .iter_mut()
                .for_each(|expected| expected.text = expand(&expected.text));
            entry
        })
        .collect()
}

/// Counts of one kind: expected, expected and found, found, found and expected.
#[derive(Default, Clone, Copy)]
struct Score {
    expected: u32,
    recalled: u32,
    found: u32,
    right: u32,
}

impl Score {
    fn recall(self) -> f64 {
        f64::from(self.recalled) / f64::from(self.expected.max(1))
    }

    fn precision(self) -> f64 {
        f64::from(self.right) / f64::from(self.found.max(1))
    }
}

/// What an entry expects, as kinds and ranges.
fn expected(entry: &Entry) -> Vec<(Kind, Range<usize>)> {
    let mut from = 0;
    let locate = |wanted: &Expected| {
        let label = |kind: &&Kind| kind.placeholder() == format!("[{}]", wanted.kind);
        let kind = *Kind::ALL.iter().find(label).unwrap();
        let start = from + entry.text.get(from..).unwrap().find(&wanted.text).unwrap();
        from = start + wanted.text.len();
        (kind, start..from)
    };
    entry.expect.iter().map(locate).collect()
}

/// Whether a finding is of the expected kind and covers at least half of what is expected.
fn matches(finding: &Finding, (kind, range): &(Kind, Range<usize>)) -> bool {
    let (start, end) = (
        finding.range.start.max(range.start),
        finding.range.end.min(range.end),
    );
    finding.kind == *kind && 2 * end.saturating_sub(start) >= range.len()
}

/// Scores one part of the corpus per kind and overall; `explain` prints what went wrong.
fn score(part: &str, explain: bool) -> (Score, BTreeMap<&'static str, Score>) {
    let mut kinds: BTreeMap<&'static str, Score> = BTreeMap::new();
    for entry in corpus().iter().filter(|entry| entry.part == part) {
        let expected = expected(entry);
        let found = redact(&entry.text, DEFAULT_THRESHOLD, KindSet::ALL).redacted;
        for wanted in &expected {
            let score = kinds.entry(wanted.0.as_str()).or_default();
            let recalled = found.iter().any(|finding| matches(finding, wanted));
            score.expected += 1;
            score.recalled += u32::from(recalled);
            if explain && !recalled {
                println!(
                    "MISSED {} {wanted:?} in {:?}; all: {:?}",
                    entry.id,
                    entry.text,
                    find(&entry.text)
                );
            }
        }
        for finding in &found {
            let score = kinds.entry(finding.kind.as_str()).or_default();
            let right = expected.iter().any(|wanted| matches(finding, wanted));
            score.found += 1;
            score.right += u32::from(right);
            if explain && !right {
                println!("WRONG {} {finding:?} in {:?}", entry.id, entry.text);
            }
        }
    }
    let total = kinds.values().fold(Score::default(), |sum, one| Score {
        expected: sum.expected + one.expected,
        recalled: sum.recalled + one.recalled,
        found: sum.found + one.found,
        right: sum.right + one.right,
    });
    (total, kinds)
}

fn report(part: &str, total: Score, kinds: &BTreeMap<&'static str, Score>) {
    for (kind, score) in kinds
        .iter()
        .map(|(kind, score)| (*kind, *score))
        .chain([("all", total)])
    {
        println!(
            "{part} {kind}: recall {:.4} ({}/{}), precision {:.4} ({}/{})",
            score.recall(),
            score.recalled,
            score.expected,
            score.precision(),
            score.right,
            score.found
        );
    }
}

#[test]
fn tuned_part_of_the_corpus() {
    let (total, kinds) = score("tune", true);
    report("tune", total, &kinds);
    assert!(total.recall() >= HELD_RECALL && total.precision() >= HELD_PRECISION);
}

#[test]
fn held_part_of_the_corpus() {
    let (total, kinds) = score("held", false);
    report("held", total, &kinds);
    assert!(
        total.recall() >= HELD_RECALL,
        "recall {:.4}",
        total.recall()
    );
    assert!(
        total.precision() >= HELD_PRECISION,
        "precision {:.4}",
        total.precision()
    );
}

#[test]
fn corpus_is_large_and_about_half_of_it_is_harmless() {
    let corpus = corpus();
    let harmless = corpus
        .iter()
        .filter(|entry| entry.expect.is_empty())
        .count();
    assert!(corpus.len() >= 450);
    assert!((corpus.len() * 2 / 5..corpus.len() * 3 / 5).contains(&harmless));
}

#[test]
fn numbers_that_name_nobody_stay() {
    for text in [
        "Order 7318204459 shipped",
        "guid 3f0a9c11-7be2-4d10-9046-202555014312",
        "epoch ms 1793540120002",
        "build 2026.11.29.1830",
        "SKU QX-204417",
        "ticket 555-0100-7",
        "10.0.0.12",
        "isbn 978-3-16-148410-0",
        "commit 1234567890abcdef",
        "pi 3.14159265358",
        "version 4.12.7.3",
    ] {
        assert_eq!(find(text), [], "{text}");
    }
}

#[test]
fn redacted_text_is_stable_over_the_corpus() {
    for entry in corpus() {
        stable(&entry.text, DEFAULT_THRESHOLD, KindSet::ALL);
    }
}

#[test]
fn kinds_left_out_stay_and_do_not_shadow_others() {
    let text = "https://bob:hunter2@example.com and jane@example.com";
    let only_mail: KindSet = [Kind::EmailAddress].into_iter().collect();
    let redacted = redact(text, DEFAULT_THRESHOLD, only_mail);
    assert!(
        redacted
            .redacted
            .iter()
            .all(|finding| finding.kind == Kind::EmailAddress)
    );
    assert!(redacted.text.ends_with("and [EMAIL_ADDRESS]"));
    assert_eq!(redact(text, DEFAULT_THRESHOLD, KindSet::NONE).text, text);
}

#[test]
fn what_is_below_the_threshold_is_listed_and_kept() {
    let redacted = redact(
        "maybe 612 345 678 or jane@example.com",
        DEFAULT_THRESHOLD,
        KindSet::ALL,
    );
    assert_eq!(redacted.text, "maybe 612 345 678 or [EMAIL_ADDRESS]");
    assert_eq!(redacted.below.len(), 1);
    assert!(redacted.below[0].confidence < DEFAULT_THRESHOLD);
}

#[test]
fn words_for_positions_do_not_excuse_passwords() {
    let redacted = redact(
        "the admin password is Fritz!Box7590",
        DEFAULT_THRESHOLD,
        KindSet::ALL,
    );
    assert_eq!(redacted.text, "the admin password is [API_KEY]");
    assert_eq!(find("page_token: abc123def456"), []);
}

#[test]
fn userinfo_goes_and_the_host_stays() {
    let redacted = redact(
        "postgres://app:S3cret@db.example.com/x?token=abc123def456",
        DEFAULT_THRESHOLD,
        KindSet::ALL,
    );
    assert_eq!(
        redacted.text,
        "postgres://[URL_CREDENTIALS]@db.example.com/x?token=[URL_CREDENTIALS]"
    );
}

#[test]
fn invisible_and_wide_characters_do_not_hide_numbers() {
    for (text, redacted) in [
        ("call 4\u{200b}15-5\u{200b}55-0199", "call [PHONE_NUMBER]"),
        ("Tel. ０３０ ２３１２５ ０４２", "Tel. [PHONE_NUMBER]"),
        (
            "card 4242\u{2011}4242\u{2011}4242\u{2011}4242",
            "card [CREDIT_CARD]",
        ),
        (
            "card 4242\u{a0}4242\u{202f}4242\u{2009}4242",
            "card [CREDIT_CARD]",
        ),
        ("jane\u{200d}@example\u{ad}.com", "[EMAIL_ADDRESS]"),
        ("jane＠example．com", "[EMAIL_ADDRESS]"),
        (
            "IBAN DE89\u{a0}3704\u{a0}0044\u{a0}0532\u{a0}0130\u{a0}00",
            "IBAN [IBAN_CODE]",
        ),
    ] {
        assert_eq!(redact(text, DEFAULT_THRESHOLD, KindSet::ALL).text, redacted);
    }
}

#[test]
fn addresses_that_name_nobody_stay() {
    let texts = "127.0.0.1|192.168.1.7:8080|172.31.0.9|169.254.1.1|100.64.0.9|203.0.113.9|198.51.100.2|8.8.8.8| \
        ::1|fe80::1|fd12:3456:789a::1|2001:db8::7|git@github.com:acme/widgets.git|npm i @scope/pkg pkg@1.2.3|thanks @jane";
    for text in texts.split('|') {
        assert_eq!(find(text), [], "{text}");
    }
}

#[test]
fn a_private_key_goes_as_a_whole() {
    let secret = fakes::all()
        .into_iter()
        .find(|(name, _)| *name == "pem")
        .unwrap()
        .1;
    let redacted = redact(&secret, DEFAULT_THRESHOLD, KindSet::ALL);
    assert_eq!(redacted.text, "[API_KEY]");
    let cut: String = secret.chars().take(150).collect();
    assert_eq!(
        redact(&cut, DEFAULT_THRESHOLD, KindSet::ALL).text,
        "[API_KEY]"
    );
    // A number between the lines is found on its own, and what is left is no key.
    stable(
        "-----BEGIN PRIVATE KEY-----\nü,+49 30 1234567-----END PRIVATE KEY-----",
        DEFAULT_THRESHOLD,
        KindSet::ALL,
    );
}

#[test]
fn hostile_texts_are_read_to_the_end() {
    for piece in [
        "@",
        "7",
        "4 ",
        "06 12 ",
        "sk-",
        "eyJ",
        "::",
        "1.",
        "a@a.",
        "-----BEGIN PRIVATE KEY-----",
        "password is ",
        "\u{200b}",
        "４",
        "+1(",
        "://a:",
        "4111\t",
        "1 \n",
        "①",
        "token a1",
        "\u{e0061}",
    ] {
        let text = piece.repeat(3_000);
        in_order(&text, &find(&text));
    }
}

/// Redacting twice is redacting once.
fn stable(text: &str, threshold: f32, kinds: KindSet) {
    let once = redact(text, threshold, kinds);
    let twice = redact(&once.text, threshold, kinds);
    assert_eq!(twice.text, once.text, "from {text:?}");
    assert_eq!(twice.redacted, [], "from {text:?}");
    in_order(text, &once.redacted);
    in_order(text, &once.below);
}

/// Ranges are in order, do not overlap, are not empty and lie on character boundaries.
fn in_order(text: &str, findings: &[Finding]) {
    let mut end = 0;
    for finding in findings {
        assert!(
            finding.range.start >= end && !finding.range.is_empty(),
            "{text:?}"
        );
        assert!(
            text.get(finding.range.clone()).is_some(),
            "{finding:?} {text:?}"
        );
        assert!((0.0..=1.0).contains(&finding.confidence));
        end = finding.range.end;
    }
}

/// Texts made of what the detectors look at, glued together at random.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "jane@example.com", "+49 30 1234567", "415-555-0123", "4242 4242 4242 4242", "DE89370400440532013000",
            "219-09-9999", "93.184.216.34", "2a01:4f8::1", "https://u:pw1@h.example/?token=abc123def456", "password: Abc123!",
            "password is ", "Bearer ", "token=", "phone ", "call ", "order ", "ip ", "version ", "card ", "電話", "密码是", "tel. ", "(at)", "[dot]",
            "[PHONE_NUMBER]", "[API_KEY]", "[", "]", "://", "@", ":", "::", "%40", "\"", "-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJmYWtlIn0.abc", "ibex_pat_abc123def456", "\u{200b}", "４１５", "\u{2011}", "\u{a0}", "ü", "é", "🙂", "\n", "\t", "①", "²", "\u{34f}", "2023 ", " mAh", "1 234 567", " pages", "+", "(", ")",
        ]).prop_map(str::to_owned),
        3 => "[ .,:;/()@+=_-]{1,2}",
        3 => "[0-9]{1,9}",
        1 => "[a-zA-Z]{1,6}",
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_text_gives_sound_ranges(text in any::<String>()) {
        in_order(&text, &find(&text));
    }

    #[test]
    fn glued_pieces_give_sound_ranges(text in pieces()) {
        in_order(&text, &find(&text));
    }

    #[test]
    fn redaction_is_idempotent(text in pieces(), threshold in prop_oneof![Just(DEFAULT_THRESHOLD), 0.31_f32..1.0], kinds in any::<u8>()) {
        stable(&text, threshold, KindSet::ALL);
        stable(&text, DEFAULT_THRESHOLD, KindSet(kinds));
    }
}
