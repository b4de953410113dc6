//! The taps against streams cut anywhere.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;
use proptest::prelude::*;

use super::{ContentCoding, DEFAULT_CAP, JsonTap, TapReport, Usage, UsageTap};

fn tap(
    pieces: impl IntoIterator<Item = impl AsRef<[u8]>>,
    coding: ContentCoding,
    cap: usize,
) -> TapReport {
    let mut tap = UsageTap::new(coding, cap);
    pieces
        .into_iter()
        .for_each(|piece| tap.feed(piece.as_ref()));
    tap.finish()
}

fn events(stream: &str) -> TapReport {
    tap([stream], ContentCoding::Identity, DEFAULT_CAP)
}

fn json(body: &str) -> TapReport {
    let mut tap = JsonTap::new(ContentCoding::Identity, DEFAULT_CAP);
    body.as_bytes().chunks(7).for_each(|piece| tap.feed(piece));
    tap.finish()
}

const fn usage(prompt: u64, completion: u64, total: u64, cached: u64) -> Option<Usage> {
    Some(Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: total,
        cached_tokens: cached,
    })
}

/// SSE-07: empty and missing choices, null usage, choices out of order, usage at the end.
const PREAMBLES: &str = concat!(
    ": keepalive\n\n",
    "data: {\"choices\":[]}\n\n",
    "data:{\"object\":\"x\"}\n\n",
    "event: chunk\nid: 1\ndata: {\"choices\":[{\"delta\":{\"content\":\"say \\\"usage\\\": 3 雪 🦉\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"index\":1,\"delta\":{}},{\"index\":0,\"delta\":{}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n",
    "data: [DONE]\n\n",
);

const PREAMBLES_REPORT: TapReport = TapReport {
    usage: usage(5, 2, 7, 0),
    saw_done: true,
    error_event: false,
    lost: false,
    events: 6,
};

#[test]
fn usage_is_found_among_odd_events() {
    assert_eq!(events(PREAMBLES), PREAMBLES_REPORT);
}

#[test]
fn every_line_ending_and_every_cut_reads_the_same() {
    for ending in ["\n", "\r\n", "\r"] {
        let stream = PREAMBLES.replace('\n', ending);
        assert_eq!(events(&stream), PREAMBLES_REPORT, "{ending:?}");
        assert_eq!(
            tap(
                stream.as_bytes().chunks(1),
                ContentCoding::Identity,
                DEFAULT_CAP
            ),
            PREAMBLES_REPORT,
            "{ending:?}"
        );
    }
}

#[test]
fn data_of_several_lines_is_one_event() {
    let stream = "data: {\"usage\":\ndata:{\"prompt_tokens\":1,\ndata\ndata: \"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
    for ending in ["\n", "\r\n", "\r"] {
        let stream = stream.replace('\n', ending);
        for size in [1, 3, usize::MAX] {
            let report = tap(
                stream.as_bytes().chunks(size),
                ContentCoding::Identity,
                DEFAULT_CAP,
            );
            assert_eq!(
                (report.usage, report.events),
                (usage(1, 2, 3, 0), 2),
                "{ending:?} {size}"
            );
        }
    }
}

#[test]
fn the_last_usage_wins_and_a_cut_stream_still_counts() {
    let one =
        "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}\n\n";
    let two = "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}";
    let expected = TapReport {
        usage: usage(5, 2, 7, 4),
        events: 2,
        ..TapReport::default()
    };
    for end in ["", "\n", "\r", "\n\n"] {
        assert_eq!(events(&format!("{one}{two}{end}")), expected);
    }
    let null_last = events(&format!("{one}{two}\n\ndata: {{\"usage\":null}}\n\n"));
    assert_eq!(null_last.usage, expected.usage);
}

/// SSE-06: an error object inside a good answer makes it a failed one.
#[test]
fn an_error_event_is_seen_and_text_about_errors_is_not_one() {
    let failed = events(
        "data: {\"error\":{\"message\":\"engine overloaded\",\"code\":\"overloaded\"}}\n\ndata: [DONE]\n\n",
    );
    assert_eq!((failed.error_event, failed.saw_done), (true, true));
    for fine in [
        "data: {\"error\":null,\"choices\":[]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\": 1}\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"error\"},\"error\":{}}]}\n\n",
        "data: {\"error\":false,\"choices\":[]}\n\n",
        ": {\"error\":{\"message\":\"a comment\"}}\n\n",
        "data: \"error\"\n\ndata: {\"error\":\n\n",
    ] {
        assert!(!events(fine).error_event, "{fine}");
    }
    assert!(events("event: error\ndata: {\"type\":\"error\",\"message\":\"x\"}\n\n").error_event);
}

#[test]
fn usage_is_read_in_every_dialect() {
    let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"error\":null,\"usage\":{\"input_tokens\":10,\
                     \"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":4,\"total_tokens\":14}}}\n\n";
    assert_eq!(events(responses).usage, usage(10, 4, 14, 3));
    assert!(!events(responses).error_event);
    assert_eq!(events("data: {\"usage\":{\"prompt_tokens\":7.0,\"prompt_cache_hit_tokens\":2,\"extra\":\"x\"}}\n\n").usage, usage(7, 0, 7, 2));
    for odd in [
        "{}",
        "[]",
        "3",
        "\"x\"",
        "{\"prompt_tokens\":-1}",
        "{\"prompt_tokens\":\"5\"}",
    ] {
        assert_eq!(
            events(&format!("data: {{\"usage\":{odd}}}\n\n")).usage,
            None,
            "{odd}"
        );
    }
}

/// SSE-13: a line of 3 MB is looked at whole.
#[test]
fn a_long_line_is_read_within_the_cap() {
    let image = "A".repeat(3 << 20);
    let line = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"image\":\"{image}\"}}}}],\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":2}}}}\n\n{PREAMBLES}"
    );
    assert_eq!(
        tap(
            line.as_bytes().chunks(16 << 10),
            ContentCoding::Identity,
            4 << 20
        ),
        TapReport {
            events: 7,
            ..PREAMBLES_REPORT
        }
    );
}

/// SSE-13: a line that never ends costs the tap, and no more memory than the cap.
#[test]
fn a_line_without_end_loses_the_tap() {
    let piece = vec![b'a'; 1 << 20];
    let mut tap = UsageTap::new(ContentCoding::Identity, 8 << 20);
    tap.feed(b"data: ");
    (0..300).for_each(|_| tap.feed(&piece));
    assert_eq!(
        format!("{tap:?}"),
        "UsageTap { inner: Inflating { lost: true, .. } }"
    );
    tap.feed(PREAMBLES.as_bytes());
    assert_eq!(
        tap.finish(),
        TapReport {
            lost: true,
            ..TapReport::default()
        }
    );
    let lines = "data: aaaa\n".repeat(100);
    assert!(events_within(&lines, 200).lost && !events_within(&lines, 600).lost);
}

fn events_within(stream: &str, cap: usize) -> TapReport {
    tap(stream.as_bytes().chunks(33), ContentCoding::Identity, cap)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_streams_are_read_however_they_are_cut() {
    let members: Vec<u8> = PREAMBLES
        .split_inclusive("\n\n")
        .flat_map(|event| gzip(event.as_bytes()))
        .collect();
    let answers = [
        (ContentCoding::Gzip, gzip(PREAMBLES.as_bytes())),
        (ContentCoding::Gzip, members),
        (ContentCoding::Deflate, zlib(PREAMBLES.as_bytes())),
        (ContentCoding::Deflate, deflate(PREAMBLES.as_bytes())),
    ];
    for (coding, bytes) in answers {
        for size in [1, 2, 5, usize::MAX] {
            assert_eq!(
                tap(bytes.chunks(size), coding, DEFAULT_CAP),
                PREAMBLES_REPORT,
                "{coding:?} {size}"
            );
        }
        if coding == ContentCoding::Deflate {
            let behind = [bytes.as_slice(), b"\0\0trailing"].concat();
            assert_eq!(tap([behind], coding, DEFAULT_CAP), PREAMBLES_REPORT);
        }
    }
}

#[test]
fn a_compressed_stream_that_is_cut_counts_up_to_the_cut() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(PREAMBLES.as_bytes()).unwrap();
    encoder.flush().unwrap();
    encoder.write_all(b"data: more").unwrap();
    let whole = encoder.get_ref().clone();
    assert_eq!(
        tap([whole], ContentCoding::Gzip, DEFAULT_CAP),
        PREAMBLES_REPORT
    );
}

#[test]
fn what_inflates_beyond_its_bounds_loses_the_tap() {
    let bomb = gzip(&vec![b'\n'; 64 << 20]);
    assert!(tap(bomb.chunks(1_000), ContentCoding::Gzip, DEFAULT_CAP).lost);
    let mut collected = JsonTap::new(ContentCoding::Gzip, 1_000);
    collected.feed(&gzip(&[b'a'; 2_000]));
    assert!(collected.finish().lost);
    assert!(tap([b"not gzip at all"], ContentCoding::Gzip, DEFAULT_CAP).lost);
    assert!(tap([PREAMBLES], ContentCoding::Unknown, DEFAULT_CAP).lost);
}

#[test]
fn codings_are_told_by_the_header() {
    let of = |name: &'static str| ContentCoding::of(Some(&HeaderValue::from_static(name)));
    assert_eq!(
        [
            ContentCoding::of(None),
            of("identity"),
            of(" GZIP "),
            of("x-gzip")
        ],
        [
            ContentCoding::Identity,
            ContentCoding::Identity,
            ContentCoding::Gzip,
            ContentCoding::Gzip
        ]
    );
    assert_eq!(
        [of("deflate"), of("br"), of("gzip, br")],
        [
            ContentCoding::Deflate,
            ContentCoding::Unknown,
            ContentCoding::Unknown
        ]
    );
}

#[test]
fn a_json_answer_is_read_from_its_end() {
    let tail =
        r#""usage" : {"prompt_tokens":5,"completion_tokens":2,"total_tokens":7} , "x":[{}] }"#;
    assert_eq!(
        json(&format!("{{\"choices\":[\"usage\"],{tail}\r\n")).usage,
        usage(5, 2, 7, 0)
    );
    // A document that is broken before its usage shows that the front is not parsed.
    assert_eq!(json(&format!("{{{{{{,{tail}")).usage, usage(5, 2, 7, 0));
}

#[test]
fn a_nested_usage_is_not_the_answers() {
    let own = r#""usage":{"prompt_tokens":5,"completion_tokens":2}"#;
    assert_eq!(
        json(&format!(
            r#"{{{own},"vendor":{{"usage":{{"prompt_tokens":99}}}}}}"#
        ))
        .usage,
        usage(5, 2, 7, 0)
    );
    assert_eq!(
        json(r#"{"vendor":{"usage":{"prompt_tokens":99}}}"#).usage,
        None
    );
    assert_eq!(
        json(&format!(r#"{{{own},"kind":"usage"}}"#)).usage,
        usage(5, 2, 7, 0)
    );
    assert_eq!(json(r#"{"usage":null}"#), TapReport::default());
}

#[test]
fn a_json_answer_with_an_error_is_a_failed_one() {
    let report = json(r#"{"error":{"message":"x"},"usage":{"prompt_tokens":1}}"#);
    assert_eq!(
        (report.error_event, report.usage),
        (true, usage(1, 0, 1, 0))
    );
    assert!(
        !json(r#"{"error":null,"choices":[{"message":{"content":"\"error\":1"}}]}"#).error_event
    );
}

proptest! {
    #[test]
    fn the_cut_of_the_pieces_changes_nothing(
        lines in prop::collection::vec(prop::sample::select(vec![
            "data: {\"usage\":{\"prompt_tokens\":1}}", "data: {\"usage\":{\"prompt_tokens\":2}}", "data:{\"error\":{\"a\":1}}", "data: [DONE]", "data", "data: 雪🦉", "",
            "", "", ": x", "event: e", "dat", "\u{feff}data: [DONE]",
        ]), 0..20),
        endings in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n", "\r"]), 20),
        sizes in prop::collection::vec(1_usize..9, 1..200),
        coding in prop::sample::select(vec![ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Deflate]),
    ) {
        let stream: String = lines.iter().zip(&endings).flat_map(|(line, ending)| [*line, *ending]).collect();
        let whole = events(&stream);
        let bytes = match coding {
            ContentCoding::Gzip => gzip(stream.as_bytes()),
            ContentCoding::Deflate => zlib(stream.as_bytes()),
            ContentCoding::Identity | ContentCoding::Unknown => stream.into_bytes(),
        };
        let mut rest = bytes.as_slice();
        let pieces = sizes.iter().cycle().map_while(|size| {
            let (piece, tail) = rest.split_at(rest.len().min(*size));
            rest = tail;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(tap(pieces, coding, DEFAULT_CAP), whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8), cap in 0_usize..64) {
        for coding in [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Deflate, ContentCoding::Unknown] {
            let report = tap(&pieces, coding, cap);
            prop_assert!(report.usage.is_none());
            let mut json = JsonTap::new(coding, cap);
            pieces.iter().for_each(|piece| json.feed(piece));
            prop_assert!(json.finish().usage.is_none());
        }
    }
}
