//! Candidates of a search: by vector and by words, within one partition, whichever way the database takes.

use std::collections::HashSet;

use ibex::config::PostgresConfig;
use ibex::memory::search::lexemes;
use ibex::memory::{Embedding, Memory, PartitionKey, Status};
use ibex::store::MemoryStore;
use ibex::store::postgres::{Candidates, PostgresStore, ensure_vector_index};

use super::databases::{Postgres, connect};
use crate::store::fixtures::{Engine, memory, new_partition, of_user, time};

const MODEL: &str = "test/3";

fn placed(partition: &PartitionKey, text: &str, vector: [f32; 3]) -> Memory {
    Memory {
        embedding: Some(Embedding {
            model: MODEL.into(),
            vector: vector.into(),
        }),
        ..memory(partition, text)
    }
}

async fn found(
    store: &PostgresStore,
    partition: &PartitionKey,
    vector: &[f32],
    words: &[&str],
    limit: usize,
) -> HashSet<String> {
    let words: Vec<String> = words.iter().flat_map(|word| lexemes(word)).collect();
    let wanted = Candidates {
        vector: (!vector.is_empty()).then_some((MODEL, vector)),
        words: &words,
        limit,
        now: time(5),
    };
    let memories = store.search_candidates(partition, wanted).await.unwrap();
    let texts: HashSet<String> = memories.iter().map(|m| m.content.to_string()).collect();
    assert_eq!(texts.len(), memories.len(), "each once");
    texts
}

fn texts(texts: &[&str]) -> HashSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// With every vector compared, and with the index asked for anything.
async fn both_ways(database: &Postgres) -> [std::sync::Arc<PostgresStore>; 2] {
    let config = database.config();
    ensure_vector_index(&config, 3).await.unwrap();
    let indexed = PostgresConfig {
        exact_rows: 0,
        ..config.clone()
    };
    [connect(&config).await, connect(&indexed).await]
}

#[tokio::test]
async fn the_nearest_and_those_with_the_words_are_found_and_nothing_else() {
    let database = Postgres::new();
    for store in both_ways(&database).await {
        let own = of_user(&new_partition(&*store).await, "ann");
        let over = Memory {
            valid_until: Some(time(5)),
            ..placed(&own, "tea is over", [1.0, 0.0, 0.0])
        };
        let early = Memory {
            valid_from: time(6),
            ..placed(&own, "tea is not yet", [1.0, 0.0, 0.0])
        };
        let held = Memory {
            status: Status::Quarantined,
            ..placed(&own, "tea is held", [1.0, 0.0, 0.0])
        };
        let other_model = Memory {
            embedding: Some(Embedding {
                model: "other/3".into(),
                vector: [1.0, 0.0, 0.0].into(),
            }),
            ..memory(&own, "other space")
        };
        let rows = vec![
            placed(&own, "north", [1.0, 0.0, 0.0]),
            placed(&own, "near north", [0.9, 0.1, 0.0]),
            placed(&own, "east", [0.0, 1.0, 0.0]),
            placed(&own, "green TEA, hot!", [0.0, 0.0, 1.0]),
            over,
            early,
            held,
            other_model,
        ];
        store.commit_all(rows).await.unwrap();
        let bob = of_user(&own, "bob");
        store
            .commit_all(vec![placed(&bob, "bob's tea", [1.0, 0.0, 0.0])])
            .await
            .unwrap();
        let north = [1.0, 0.05, 0.0];
        assert_eq!(
            found(&store, &own, &north, &[], 2).await,
            texts(&["north", "near north"])
        );
        assert_eq!(
            found(&store, &own, &[], &["tea"], 5).await,
            texts(&["green TEA, hot!"])
        );
        let both = found(&store, &own, &north, &["hot", "cocoa"], 1).await;
        assert_eq!(both, texts(&["north", "green TEA, hot!"]));
        assert!(found(&store, &own, &[], &[], 5).await.is_empty());
        assert!(found(&store, &own, &[], &["!"], 5).await.is_empty());
        let all = found(&store, &own, &north, &[], 50).await;
        assert_eq!(
            all,
            texts(&["north", "near north", "east", "green TEA, hot!"])
        );
        assert_eq!(store.partition_size(&own, 100).await.unwrap(), 7);
        assert_eq!(store.partition_size(&own, 3).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_candidate_comes_back_whole_and_what_was_forgotten_does_not() {
    let database = Postgres::new();
    for store in both_ways(&database).await {
        let own = new_partition(&*store).await;
        let (kept, gone) = (
            placed(&own, "kept tea", [1.0, 0.0, 0.0]),
            placed(&own, "gone tea", [1.0, 0.0, 0.0]),
        );
        store
            .commit_all(vec![kept.clone(), gone.clone()])
            .await
            .unwrap();
        let scope = std::slice::from_ref(&own);
        store
            .forget_memory(scope, gone.id, time(1))
            .await
            .unwrap()
            .unwrap();
        let words = ["tea".to_owned()];
        let wanted = Candidates {
            vector: Some((MODEL, &[1.0, 0.0, 0.0])),
            words: &words,
            limit: 10,
            now: time(5),
        };
        let found = store.search_candidates(&own, wanted).await.unwrap();
        let read = store.memory(scope, kept.id).await.unwrap().unwrap();
        assert_eq!(format!("{found:?}"), format!("{:?}", [read]));
    }
}

#[tokio::test]
async fn rare_words_decide_over_common_ones() {
    let database = Postgres::new();
    let store = database.connect().await;
    let own = new_partition(&*store).await;
    let mut rows: Vec<Memory> = (0..60)
        .map(|n| memory(&own, &format!("the usual note {n}")))
        .collect();
    rows.insert(7, memory(&own, "the invoice ZX-4431 is paid"));
    store.commit_all(rows).await.unwrap();
    let best = found(&store, &own, &[], &["the", "usual", "invoice"], 1).await;
    assert_eq!(best, texts(&["the invoice ZX-4431 is paid"]));
    assert_eq!(found(&store, &own, &[], &["ZX-4431"], 3).await, best);
    assert_eq!(found(&store, &own, &[], &["usual"], 10).await.len(), 10);
}

#[tokio::test]
async fn vectors_come_back_bit_for_bit() {
    let database = Postgres::new();
    let store = database.connect().await;
    let own = new_partition(&*store).await;
    let bits = [
        0x0000_0001,
        0x8000_0000,
        0x3f80_0001,
        0xbf7f_ffff,
        0x7f7f_ffff,
        0x0080_0000,
        0x3dcc_cccd,
    ];
    let vector: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
    let written = Memory {
        embedding: Some(Embedding {
            model: MODEL.into(),
            vector: vector.into(),
        }),
        ..memory(&own, "tea")
    };
    store.commit_all(vec![written.clone()]).await.unwrap();
    let read = store
        .memory(std::slice::from_ref(&own), written.id)
        .await
        .unwrap()
        .unwrap();
    let read: Vec<u32> = read
        .embedding
        .unwrap()
        .vector
        .iter()
        .map(|x| x.to_bits())
        .collect();
    assert_eq!(read, bits);
}

#[tokio::test]
async fn texts_are_taken_apart_as_the_program_does_it() {
    let database = Postgres::new();
    let store = database.connect().await;
    let own = new_partition(&*store).await;
    let (tea, runner, ticket) = (
        "她每天早上喝乌龙茶",
        "Ann was running in Zürich",
        "the invoice ZX-4431 is paid",
    );
    for text in [tea, runner, ticket] {
        store.commit_all(vec![memory(&own, text)]).await.unwrap();
    }
    for (asked, text) in [
        ("乌龙茶", tea),
        ("runs", runner),
        ("zurich", runner),
        ("invoices", ticket),
    ] {
        assert_eq!(
            found(&store, &own, &[], &[asked], 5).await,
            texts(&[text]),
            "{asked}"
        );
    }
}
