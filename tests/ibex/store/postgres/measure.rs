//! Measures.
use super::databases::{Postgres, connect};
use crate::store::fixtures::sessions::{key, open, record, settled};
use crate::store::fixtures::{Engine, memory, new_partition, of_user, time};
use ibex::store::*;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measure() {
    let database = Postgres::new();
    let store = connect(&ibex::config::PostgresConfig {
        fence_timeout_ms: 25,
        ..database.config()
    })
    .await;
    let own = new_partition(&*store).await;
    let ann = of_user(&own, "ann");
    let both = [own.clone(), ann.clone()];
    let session = key(&ann, "s");
    record(
        &*store,
        &[vec![open(&session, 1)], settled(&session, 3)].concat(),
    )
    .await;
    let tea = memory(&ann, "tea");
    store.commit_all(vec![tea.clone()]).await.unwrap();
    macro_rules! timed {
        ($name:literal, $n:expr, $e:expr) => {{
            for _ in 0..20 {
                let _ = $e;
            }
            let mut all = Vec::new();
            for _ in 0..$n {
                let b = Instant::now();
                let _ = $e;
                all.push(b.elapsed());
            }
            all.sort();
            println!(
                "{:30} median {:?} p99 {:?}",
                $name,
                all[all.len() / 2],
                all[all.len() * 99 / 100]
            );
        }};
    }
    timed!("fence", 2000, store.forget_fence(&both).await.unwrap());
    timed!(
        "knows_session",
        1000,
        store.knows_session(&session).await.unwrap()
    );
    timed!("org", 1000, store.org(own.org).await.unwrap());
    timed!(
        "agent",
        1000,
        store.agent(own.org, own.agent).await.unwrap()
    );
    timed!(
        "memories_by_id",
        500,
        store.memories_by_id(&both, &[tea.id]).await.unwrap()
    );
    timed!(
        "session_lane",
        500,
        store
            .session_lane(&ibex::session::LaneKey {
                session: session.clone(),
                lane: ibex::session::Lane::new("openai", "gpt-4o")
            })
            .await
            .unwrap()
    );
    let mut n = 0;
    timed!("commit 1", 200, {
        n += 1;
        store
            .commit_all(vec![memory(&ann, &format!("text {n}"))])
            .await
            .unwrap()
    });
    timed!("commit 100", 10, {
        let rows = (0..100)
            .map(|i| {
                n += 1;
                memory(&ann, &format!("text {n} {i}"))
            })
            .collect();
        store.commit_all(rows).await.unwrap()
    });
    let mut k = 0;
    timed!("record 1024", 10, {
        k += 1;
        let batch: Vec<_> = (0..256)
            .flat_map(|i| {
                let s = key(&ann, &format!("k{k}-{i}"));
                [vec![open(&s, 1)], settled(&s, 3)].concat()
            })
            .collect();
        store.record_sessions(batch).await.unwrap()
    });
    timed!("poll", 500, store.poll().await.unwrap());
    timed!(
        "page of 1000",
        10,
        store.partition_memories(&ann, None, 1000).await.unwrap()
    );
    let _ = time(0);
}
