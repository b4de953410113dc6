use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::{Count, Counter, Family, MixedFamilies};
use crate::ids::OrgId;

fn counter() -> Counter {
    Counter::new([7; 32], 1_000)
}

/// Both exact families against an independent implementation.
fn assert_exact(text: &str) {
    let counts = counter().counts(text);
    assert_eq!(
        counts.o200k as usize,
        bpe_openai::o200k_base().count(text),
        "o200k: {text:.80?}"
    );
    assert_eq!(
        counts.cl100k as usize,
        bpe_openai::cl100k_base().count(text),
        "cl100k: {text:.80?}"
    );
}

#[test]
fn exact_counts_agree_with_an_independent_tokenizer() {
    let texts = [
        "",
        " ",
        "\n\n \t\r\n",
        "The quick brown fox's tail isn't 1,234,567.89 metres long.",
        "fn main() {\n    println!(\"{}\", x << 2); // comment\n}\n",
        "{\"a\":[1,2,3],\"b\":null,\"name\":\"get_weather\"}",
        "日本語のテキストと中文文本，以及 한국어 텍스트。",
        "مرحبا بالعالم! שלום עולם. Привет, мир. नमस्ते दुनिया",
        "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪e\u{301}\u{200b}\u{200d}\u{feff}\u{202e}abc",
        "<|endoftext|> <|im_start|>system<|im_sep|>x<|im_end|><|fim_prefix|>",
        "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=/+_-0123456789abcdef",
        "\u{0}\u{1}\u{7f}\u{85}\u{a0}\u{2028}\u{2029}\u{3000}x",
    ];
    texts.iter().for_each(|text| assert_exact(text));
    assert_exact(&texts.concat().repeat(40));
}

#[test]
fn long_runs_of_one_character_are_counted_exactly() {
    for run in ["a", " ", "!", "字", "\n", "ab"] {
        assert_exact(&run.repeat(100_000 / run.len()));
    }
}

#[test]
fn control_tokens_are_ordinary_text() {
    let (counter, org) = (counter(), OrgId::new());
    for family in [Family::O200kBase, Family::Cl100kBase] {
        assert!(counter.count(org, family, "<|endoftext|>") > 1);
    }
}

#[test]
fn estimates_do_not_undercount_scripts_with_a_token_per_character() {
    let (counter, org) = (counter(), OrgId::new());
    for family in [Family::Claude, Family::Unknown] {
        assert_eq!(counter.count(org, family, ""), 0);
        assert_eq!(counter.count(org, family, "a"), 1);
        assert_eq!(counter.count(org, family, "abcd"), 2);
        assert_eq!(counter.count(org, family, "漢字かな"), 4);
    }
}

#[test]
fn the_cache_is_keyed_by_organisation_family_content_and_key() {
    let (first, second) = (counter(), Counter::new([8; 32], 1_000));
    let (org, text) = (OrgId::new(), "x".repeat(100));
    let base = first.digest_for_test(org, Family::O200kBase, &text);
    assert_eq!(
        base,
        first.clone().digest_for_test(org, Family::O200kBase, &text)
    );
    assert_ne!(
        base,
        first.digest_for_test(OrgId::new(), Family::O200kBase, &text)
    );
    assert_ne!(base, first.digest_for_test(org, Family::Cl100kBase, &text));
    assert_ne!(
        base,
        first.digest_for_test(org, Family::O200kBase, &text.repeat(2))
    );
    assert_ne!(base, second.digest_for_test(org, Family::O200kBase, &text));
}

#[test]
fn long_texts_are_cached_within_the_bound_and_short_ones_not_at_all() {
    let (counter, org) = (Counter::new([7; 32], 10), OrgId::new());
    let count = |family, length| counter.count(org, family, &"s".repeat(length));
    assert!(count(Family::O200kBase, 63) > 0 && count(Family::Unknown, 1_000) > 0);
    assert_eq!(counter.entries_for_test(), 0);
    assert!(count(Family::O200kBase, 64) > 0);
    assert_eq!(counter.entries_for_test(), 1);
    assert!((64..164).all(|length| count(Family::O200kBase, length) > 0));
    assert!(counter.entries_for_test() <= 10);
}

#[test]
fn debug_output_holds_no_key() {
    assert_eq!(format!("{:?}", counter()), "Counter { entries: 0, .. }");
}

#[test]
fn counts_of_two_families_do_not_add() {
    let exact = Count::new(Family::O200kBase, 3);
    assert_eq!(
        exact.plus(Count::new(Family::O200kBase, 4)),
        Ok(Count::new(Family::O200kBase, 7))
    );
    let mixed = MixedFamilies {
        left: Family::O200kBase,
        right: Family::Claude,
    };
    assert_eq!(exact.plus(Count::zero(Family::Claude)), Err(mixed));
    assert_eq!(
        Count::new(Family::Claude, u32::MAX)
            .plus(Count::new(Family::Claude, 1))
            .unwrap()
            .tokens,
        u32::MAX
    );
}

proptest! {
    #[test]
    fn any_text_is_counted_exactly_and_the_same_from_the_cache(text in any::<String>()) {
        let (counter, org) = (counter(), OrgId::new());
        let counts = counter.counts(&text);
        prop_assert_eq!(counts.o200k as usize, bpe_openai::o200k_base().count(text.as_str()));
        prop_assert_eq!(counts.cl100k as usize, bpe_openai::cl100k_base().count(text.as_str()));
        for family in Family::ALL {
            prop_assert_eq!(counter.count(org, family, &text), counts.of(family));
            prop_assert_eq!(counter.counted(org, family, &text), Count::new(family, counts.of(family)));
        }
    }

    #[test]
    fn estimates_are_never_below_the_character_rules(text in any::<String>()) {
        let counts = counter().counts(&text);
        let characters = u32::try_from(text.chars().count()).unwrap();
        prop_assert!(counts.unknown >= characters.div_ceil(4));
        prop_assert!(counts.claude >= (2 * characters).div_ceil(7));
    }
}
