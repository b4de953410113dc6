//! The scanner against `serde_json`.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::{JsonFault, MAX_DEPTH, RawStr, Scanner};

fn scan(bytes: &[u8]) -> Result<(), JsonFault> {
    let mut scanner = Scanner::new(bytes)?;
    scanner.skip()?;
    scanner.end()
}

/// The reference: `serde_json`'s validating pass, which builds nothing and so refuses neither `1e999` nor lone surrogates.
fn reference(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

#[test]
fn the_grammar_is_rfc_8259() {
    let good = [
        "0",
        "-0",
        "-0.0e-0",
        "1e999",
        "1E+2",
        " [ ] ",
        "{}",
        "[1,2]",
        "\"\\ud83d\"",
        "\"\\/\\u00e9\"",
        "\t\r\n null ",
        "{\"\":{}}",
        "\"\u{7f}é\"",
    ];
    for text in good {
        assert_eq!(scan(text.as_bytes()), Ok(()), "{text}");
        assert!(reference(text.as_bytes()), "{text}");
    }
}

#[test]
fn what_is_nearly_json_is_refused() {
    let bad = [
        "",
        " ",
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "-",
        "--1",
        "nul",
        "nulll",
        "tru",
        "True",
        "[1,]",
        "[,1]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "'a'",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u123",
        "\"a\nb\"",
        "\"\t\"",
        "[1 2]",
        "1 2",
        "\u{feff}1",
        "\u{a0}1",
        "NaN",
        "[",
        "]",
        "{\"a\":1",
        "/**/1",
    ];
    for text in bad {
        assert!(scan(text.as_bytes()).is_err(), "{text}");
        assert!(!reference(text.as_bytes()), "{text}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    assert_eq!(scan(b"\"\xff\""), Err(JsonFault::NotUtf8));
    assert_eq!(scan(b"\"\xed\xa0\xbd\""), Err(JsonFault::NotUtf8));
}

#[test]
fn depth_is_bounded_where_serde_json_bounds_it() {
    for (depth, fits) in [
        (usize::from(MAX_DEPTH), true),
        (usize::from(MAX_DEPTH) + 1, false),
        (1_000_000, false),
    ] {
        let arrays = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(scan(arrays.as_bytes()).is_ok(), fits);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&arrays).is_ok(),
            fits
        );
        let objects = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        assert_eq!(scan(objects.as_bytes()).is_ok(), fits);
    }
    let siblings = format!("[{}[]]", "[[]],".repeat(500));
    assert_eq!(scan(siblings.as_bytes()), Ok(()));
}

fn decoded(text: &str) -> String {
    let raw = RawStr {
        range: 0..text.len(),
        escaped: text.contains('\\'),
        odd: false,
    };
    raw.decode(text.as_bytes()).into_owned()
}

#[test]
fn half_a_surrogate_pair_decodes_to_the_replacement_character() {
    assert_eq!(decoded(r#""\ud83d\ude00!""#), "😀!");
    assert_eq!(decoded(r#""a\ud83d""#), "a\u{fffd}");
    assert_eq!(decoded(r#""\ud83d\n\ude00""#), "\u{fffd}\n\u{fffd}");
    assert_eq!(decoded(r#""\ud83d\ud83d\ude00""#), "\u{fffd}😀");
    assert_eq!(
        decoded(r#""\"\\\/\b\f\n\r\té\u00e9""#),
        "\"\\/\u{8}\u{c}\n\r\téé"
    );
}

/// Text made of the tokens of JSON, so that a good share of it is nearly JSON.
fn nearly_json() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "\"a\"",
            "\"\\u00e9\"",
            "\"\\ud800\"",
            "true",
            "false",
            "null",
            "0",
            "1",
            "-",
            ".",
            "e",
            "E5",
            "1.5",
            " ",
            "\n",
            "\u{0}",
            "é",
            "[]",
            "{}",
            "\"k\":1",
            "[1]"
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn it_accepts_what_serde_json_accepts(text in nearly_json()) {
        prop_assert_eq!(scan(text.as_bytes()).is_ok(), reference(text.as_bytes()));
    }

    #[test]
    fn it_accepts_bytes_as_serde_json_does(bytes in prop::collection::vec(prop::sample::select(b"\"\\u0[]{},:1e-. \xc3\xa9".to_vec()), 0..10)) {
        prop_assert_eq!(scan(&bytes).is_ok(), reference(&bytes));
    }

    #[test]
    fn a_cut_or_changed_document_is_judged_as_serde_json_judges_it(value in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = value.to_string().into_bytes();
        prop_assert_eq!(scan(&bytes), Ok(()));
        let at = at.index(bytes.len());
        let cut = &bytes[..at];
        prop_assert_eq!(scan(cut).is_ok(), reference(cut));
        bytes[at] = byte;
        prop_assert_eq!(scan(&bytes).is_ok(), reference(&bytes));
    }

    #[test]
    fn decoding_undoes_encoding(text in any::<String>()) {
        let encoded = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(decoded(&encoded), text);
    }
}

fn respelled(text: &str) -> String {
    let raw = Scanner::resume(text.as_bytes(), 0).string().unwrap();
    let mut out = Vec::new();
    raw.respelled(text.as_bytes(), |piece| out.extend_from_slice(piece));
    String::from_utf8(out).unwrap()
}

#[test]
fn a_text_is_respelled_only_where_an_escape_is_odd() {
    let cases = [
        (r#""""#, ""),
        (r#""a\n\\u0041 \" é""#, r#"a\n\\u0041 \" é"#),
        (r#""\u0041\/\\\/""#, r#"A/\\/"#),
        (
            r#""\u0022\u005C\u0008\u000c\u000A\u000d\u0009""#,
            r#"\"\\\b\f\n\r\t"#,
        ),
        (r#""\u001F\u007f""#, "\\u001f\u{7f}"),
        (r#""x\ud83d\uDE00\ud83d!""#, "x😀\u{fffd}!"),
    ];
    for (text, expected) in cases {
        assert_eq!(respelled(text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn the_respelling_is_serde_jsons(text in any::<String>(), odd in any::<bool>()) {
        let plain = serde_json::to_string(&text).unwrap();
        let spelled = if odd {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
            format!("\"{}\"", units.collect::<String>())
        } else {
            plain.clone()
        };
        prop_assert_eq!(format!("\"{}\"", respelled(&spelled)), plain);
    }
}
