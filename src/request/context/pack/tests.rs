use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

use super::improve::improve;
use super::{BUCKET_TOKENS, Item, Packed, Path, pack};

/// The configuration's default ceiling.
const CEILING: usize = 437_570;

fn item(value: f32, tokens: u32) -> Item {
    Item { value, tokens }
}

/// The best value within `capacity`, by trying every set.
fn optimum(items: &[Item], capacity: u32) -> f64 {
    let sets = 0_u32..1 << items.len();
    let worth = |set: u32| {
        let members = items
            .iter()
            .enumerate()
            .filter(|(position, _)| set >> position & 1 == 1);
        members.fold((0.0, 0_u64), |(value, tokens), (_, i)| {
            (value + f64::from(i.value), tokens + u64::from(i.tokens))
        })
    };
    sets.map(worth)
        .filter(|(_, tokens)| *tokens <= u64::from(capacity))
        .fold(0.0, |best, (value, _)| best.max(value))
}

/// The share of the optimum that was reached.
fn quality(items: &[Item], capacity: u32, packed: &Packed) -> f64 {
    let best = optimum(items, capacity);
    if best == 0.0 {
        1.0
    } else {
        f64::from(packed.total_value) / best
    }
}

/// Up to 14 candidates in rank order, with a capacity between nothing and all of them.
fn problems(tokens: std::ops::Range<u32>) -> impl Strategy<Value = (Vec<Item>, u32)> {
    let items = prop::collection::vec((0.0_f32..1.0, tokens), 1..15);
    (items, 0..110_u32).prop_map(|(raw, share)| ranked(raw, share))
}

/// Puts candidates into rank order and makes a share of their tokens, in percent, the capacity.
fn ranked(mut raw: Vec<(f32, u32)>, share: u32) -> (Vec<Item>, u32) {
    raw.sort_by(|a, b| b.0.total_cmp(&a.0));
    let items: Vec<Item> = raw
        .into_iter()
        .map(|(value, tokens)| item(value, tokens))
        .collect();
    let capacity = items.iter().map(|i| i.tokens).sum::<u32>() * share / 100;
    (items, capacity)
}

/// A ceiling under which only the coarse table fits.
fn coarse_ceiling(items: &[Item], capacity: u32) -> usize {
    items.len() * (capacity / BUCKET_TOKENS + 1) as usize
}

fn chosen(items: &[Item], capacity: u32) -> Vec<usize> {
    pack(items, capacity, CEILING).chosen
}

#[test]
fn no_candidates_are_no_truncation() {
    for capacity in [0, 100] {
        let packed = pack(&[], capacity, CEILING);
        assert_eq!(
            (
                packed.path,
                packed.evaluated,
                packed.skipped,
                packed.budget_reached
            ),
            (Path::Dp, 0, 0, false)
        );
    }
}

#[test]
fn no_capacity_skips_every_candidate() {
    let packed = pack(&[item(0.9, 10), item(0.8, 0)], 0, CEILING);
    let expected = Packed {
        chosen: Vec::new(),
        total_tokens: 0,
        total_value: 0.0,
        path: Path::Dp,
        bucket: 1,
        evaluated: 2,
        skipped: 2,
        skipped_unseen: 0,
        budget_reached: true,
    };
    assert_eq!(packed, expected);
}

#[test]
fn everything_is_taken_when_everything_fits() {
    let packed = pack(&[item(0.9, 10), item(0.0, 20), item(0.5, 70)], 100, 0);
    assert_eq!(
        (packed.chosen.as_slice(), packed.total_tokens),
        (&[0, 1, 2][..], 100)
    );
    assert_eq!(
        (packed.path, packed.bucket, packed.budget_reached),
        (Path::Dp, 1, false)
    );
}

#[test]
fn two_short_items_beat_a_long_better_one() {
    assert_eq!(
        chosen(&[item(0.9, 100), item(0.6, 50), item(0.5, 50)], 100),
        [1, 2]
    );
}

#[test]
fn of_equally_good_sets_the_higher_ranks_win() {
    assert_eq!(chosen(&[item(0.5, 30); 4], 60), [0, 1]);
    assert_eq!(
        chosen(&[item(1.0, 60), item(0.5, 30), item(0.5, 30)], 60),
        [0]
    );
}

#[test]
fn an_item_heavier_than_the_capacity_is_skipped_and_a_free_one_taken() {
    let packed = pack(
        &[item(0.9, 101), item(0.8, 0), item(0.7, 100), item(0.6, 100)],
        100,
        CEILING,
    );
    assert_eq!(
        (
            packed.chosen.as_slice(),
            packed.skipped,
            packed.budget_reached
        ),
        (&[1, 2][..], 2, true)
    );
    assert_eq!(packed.report(100).capacity, 100);
}

#[test]
fn what_is_worth_nothing_takes_no_room() {
    let items = [
        item(f32::NAN, 50),
        item(f32::INFINITY, 50),
        item(-1.0, 50),
        item(0.0, 50),
        item(0.1, 50),
    ];
    assert_eq!(chosen(&items, 100), [4]);
    assert_eq!(pack(&items, 100, coarse_ceiling(&items, 100)).chosen, [4]);
}

#[test]
fn the_ceiling_chooses_the_table() {
    let items = [item(0.5, 40); 10];
    let path = |ceiling| {
        let packed = pack(&items, 160, ceiling);
        (packed.path, packed.bucket, packed.chosen.len())
    };
    assert_eq!(path(10 * 161), (Path::Dp, 1, 4));
    assert_eq!(path(10 * 161 - 1), (Path::Dp, 16, 4));
    assert_eq!(path(10 * 11), (Path::Dp, 16, 4));
    assert_eq!(path(10 * 11 - 1), (Path::Greedy, 1, 4));
}

#[test]
fn the_rank_order_pass_stops_after_six_misses_in_a_row() {
    let mut items = vec![item(0.9, 90)];
    items.extend([item(0.8, 20); 5]);
    items.push(item(0.7, 5));
    items.extend([item(0.6, 20); 6]);
    items.extend([item(0.5, 1); 3]);
    let packed = pack(&items, 100, 0);
    assert_eq!(
        (packed.chosen.as_slice(), packed.total_tokens),
        (&[0, 6][..], 95)
    );
    assert_eq!(
        (
            packed.path,
            packed.evaluated,
            packed.skipped,
            packed.skipped_unseen
        ),
        (Path::Greedy, 16, 14, 3)
    );
    assert!(packed.budget_reached);
}

fn improved(items: &[Item], capacity: u32, start: &[usize]) -> Vec<usize> {
    improve(items, capacity, start).chosen
}

#[test]
fn a_set_that_is_too_heavy_loses_what_matters_least() {
    let items = [item(0.9, 40), item(0.5, 30), item(0.4, 20), item(0.3, 10)];
    assert_eq!(
        improved(&items, 80, &[0, 1, 2, 3]),
        [0, 1, 3],
        "the cheapest that is heavy enough alone"
    );
    assert_eq!(
        improved(&items, 20, &[1, 2, 3]),
        [2],
        "where none is, the thinnest first"
    );
    assert_eq!(
        improved(&[item(0.5, 30); 3], 60, &[0, 1, 2]),
        [0, 1],
        "of equals the lowest rank"
    );
}

#[test]
fn room_that_is_left_is_used_in_rank_order() {
    let items = [item(0.9, 40), item(0.5, 30), item(0.4, 30), item(0.0, 10)];
    assert_eq!(improved(&items, 80, &[0]), [0, 1]);
}

#[test]
fn an_item_is_exchanged_for_a_better_one_that_fits() {
    let items = [item(0.9, 71), item(0.8, 70), item(0.7, 60), item(0.1, 10)];
    assert_eq!(improved(&items, 80, &[2, 3]), [1, 3]);
}

/// Seventy candidates in rank order, and a share of their tokens as the capacity.
fn large_problems() -> impl Strategy<Value = (Vec<Item>, u32)> {
    let lengths = prop::sample::select(vec![1..32_u32, 8..100, 20..200, 60..300, 100..400]);
    let items = lengths.prop_flat_map(|tokens| prop::collection::vec((0.0_f32..1.0, tokens), 70));
    (items, 10..90_u32).prop_map(|(raw, share)| ranked(raw, share))
}

proptest! {
    #[test]
    fn the_exact_table_reaches_the_optimum((items, capacity) in problems(0..100)) {
        let packed = pack(&items, capacity, CEILING);
        prop_assert_eq!(packed.bucket, 1);
        prop_assert!(packed.total_tokens <= capacity);
        prop_assert!(capacity == 0 || quality(&items, capacity, &packed) > 1.0 - 1e-5);
    }

    #[test]
    fn the_coarse_table_stays_within_the_budget_and_keeps_half((items, capacity) in problems(0..100)) {
        let packed = pack(&items, capacity, coarse_ceiling(&items, capacity));
        prop_assert!(packed.total_tokens <= capacity);
        prop_assert!(capacity == 0 || quality(&items, capacity, &packed) > 0.5 - 1e-5);
    }

    #[test]
    fn among_many_candidates_the_coarse_table_loses_little((items, capacity) in large_problems()) {
        let best = pack(&items, capacity, usize::MAX);
        let packed = pack(&items, capacity, coarse_ceiling(&items, capacity));
        prop_assert_eq!((best.bucket, packed.bucket), (1, BUCKET_TOKENS));
        prop_assert!(packed.total_tokens <= capacity && packed.total_value >= 0.95 * best.total_value);
    }

    #[test]
    fn any_input_is_packed_within_the_budget_and_the_same_twice(
        raw in prop::collection::vec((any::<f32>(), any::<u32>()), 0..40), capacity in 0..20_000_u32, ceiling in 0..1_000_000_usize,
    ) {
        let items: Vec<Item> = raw.into_iter().map(|(value, tokens)| item(value, tokens >> (tokens % 32))).collect();
        let packed = pack(&items, capacity, ceiling);
        prop_assert!(packed.total_tokens <= capacity);
        prop_assert!(packed.chosen.is_sorted_by(|a, b| a < b));
        prop_assert_eq!(packed.chosen.len() + packed.skipped, packed.evaluated);
        prop_assert_eq!(packed, pack(&items, capacity, ceiling));
    }
}
