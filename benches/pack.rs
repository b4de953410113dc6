//! How long one packing takes: seventy candidates, the most that a default configuration retrieves, on each of the packer's paths.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ibex::request::context::pack::{Item, pack};

/// Candidates in rank order: scores fall from 0.9, lengths vary from 12 to 411 tokens without a pattern.
fn candidates(count: u32) -> Vec<Item> {
    let length = |rank: u32| 12 + rank.wrapping_mul(2_654_435_761) % 400;
    (0..count)
        .map(|rank| Item {
            value: 0.9 * 0.98_f32.powf(rank as f32),
            tokens: length(rank),
        })
        .collect()
}

fn packing(criterion: &mut Criterion) {
    let items = candidates(70);
    let mut group = criterion.benchmark_group("pack_70");
    for (name, capacity, ceiling) in [
        ("exact_512", 512, 437_570),
        ("exact_2000", 2_000, 437_570),
        ("exact_6250", 6_250, 437_570),
        ("coarse_8000", 8_000, 437_570),
        ("greedy_8000", 8_000, 0),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| pack(black_box(&items), capacity, ceiling))
        });
    }
    group.finish();
}

criterion_group!(benches, packing);
criterion_main!(benches);
