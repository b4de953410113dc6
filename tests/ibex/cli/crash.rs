//! A server that is killed again and again while clients write: what was acknowledged stays, nothing is there twice, and no key is stuck.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use proptest::prelude::Strategy;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Ibex;
use super::process::Running;
use super::serving::{client, serve, serving};
use crate::support::Client;

const WRITES: usize = 500;
const WRITERS: usize = 8;
const KILLS: usize = 12;

/// What every writer shares.
struct Scene {
    token: String,
    /// Where the server listens now.
    address: watch::Receiver<String>,
    /// Identifiers that a client was given, by the number of the write.
    acknowledged: watch::Sender<HashMap<usize, String>>,
}

impl Scene {
    fn client(&self, address: &str, write: usize) -> Client {
        Client::new(address.parse().unwrap())
            .header("authorization", &format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .header("idempotency-key", &format!("parcel-{write}"))
    }

    /// One keyed write, repeated until it is acknowledged. Whether it was replayed is told.
    async fn write(&self, write: usize) -> bool {
        let shelf = write * 7_919 % 10_007;
        let body = json!({"content": format!("Parcel {write} waits on shelf {shelf}.")});
        let mut address = self.address.clone();
        loop {
            let client = self.client(&address.borrow_and_update(), write);
            let sent = client.try_send(Method::POST, "/v1/memories", body.to_string().into());
            let Some(answer) = sent.await else {
                address.changed().await.unwrap();
                continue;
            };
            // A claim that outlived its process would be a 409 here.
            assert_eq!(answer.status, StatusCode::CREATED, "{write}: {answer:?}");
            let id = answer.json()["id"].as_str().unwrap().to_owned();
            self.acknowledged.send_modify(|acknowledged| {
                let former = acknowledged.insert(write, id.clone());
                assert!(
                    former.is_none_or(|former| former == id),
                    "write {write} has one outcome"
                );
            });
            return answer.header("x-idempotency-replayed") == "true";
        }
    }
}

/// Every memory of the agent, as `(id, content)`.
async fn listed(client: &Client) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut path = "/v1/memories?limit=100".to_owned();
    loop {
        let page = client.get(&path).await.json();
        let text = |memory: &Value, field: &str| memory[field].as_str().unwrap().to_owned();
        let memories = page["memories"].as_array().unwrap();
        all.extend(memories.iter().map(|m| (text(m, "id"), text(m, "content"))));
        if page["has_more"] == false {
            return all;
        }
        let (last, _) = all.last().unwrap();
        path = format!("/v1/memories?limit=100&after={last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_writes_survive_kills_at_random_moments() {
    let ibex = Ibex::new();
    let token = ibex.json(&["init"])["token"].as_str().unwrap().to_owned();
    let (mut server, address) = serve(&ibex);
    let (moved, address) = watch::channel(address);
    let scene = Arc::new(Scene {
        token,
        address,
        acknowledged: watch::Sender::default(),
    });
    let next = Arc::new(AtomicUsize::new(0));
    let writers = (0..WRITERS).map(|_| {
        let (scene, next) = (scene.clone(), next.clone());
        tokio::spawn(async move {
            let mut replayed = 0;
            loop {
                let write = next.fetch_add(1, Ordering::Relaxed);
                if write >= WRITES {
                    return replayed;
                }
                replayed += usize::from(scene.write(write).await);
            }
        })
    });
    let writers = tokio::spawn(join_all(writers));

    // Each kill comes when so many more writes are acknowledged as chance says, with the others' requests in every state.
    let mut chance = TestRunner::default();
    let pause = 1..(WRITES / KILLS);
    for _ in 0..KILLS {
        let more = pause.new_tree(&mut chance).unwrap().current();
        let mut acknowledged = scene.acknowledged.subscribe();
        let until = (acknowledged.borrow().len() + more).min(WRITES - 1);
        acknowledged
            .wait_for(|all| all.len() >= until)
            .await
            .unwrap();
        server.signal("KILL");
        server.wait();
        let address;
        (server, address) = serve(&ibex);
        moved.send_replace(address);
    }
    let replayed: usize = writers.await.unwrap().into_iter().map(Result::unwrap).sum();
    println!("{replayed} of {WRITES} writes were committed and not answered before a kill");

    let client = scene.client(&scene.address.borrow(), WRITES);
    let held = listed(&client).await;
    assert_eq!(held.len(), WRITES, "no duplicate, nothing lost");
    let by_id: HashMap<String, String> = held.into_iter().collect();
    assert_eq!(by_id.len(), WRITES);
    let acknowledged = scene.acknowledged.borrow().clone();
    for (write, id) in &acknowledged {
        let content = by_id
            .get(id)
            .unwrap_or_else(|| panic!("write {write} is lost"));
        assert!(
            content.starts_with(&format!("Parcel {write} ")),
            "{content}"
        );
    }
    // Every key still has its outcome.
    for write in (0..WRITES).step_by(50) {
        assert!(scene.write(write).await, "{write} is replayed");
    }
}

/// Sets how large the process's files may become, as a disk without room would.
fn limit_files(server: &Running, bytes: &str) {
    let set = Command::new("prlimit")
        .args([
            format!("--pid={}", server.id()),
            format!("--fsize={bytes}:unlimited"),
        ])
        .status()
        .unwrap();
    assert!(set.success(), "prlimit --fsize={bytes}");
}

#[tokio::test]
async fn a_disk_without_room_refuses_writes_and_is_forgotten_when_there_is_room() {
    let ibex = Ibex::new();
    let token = ibex.json(&["init"])["token"].as_str().unwrap().to_owned();
    // A file that may not grow is an error to the server, not a signal.
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "trap '' XFSZ; exec \"$0\" serve",
            env!("CARGO_BIN_EXE_ibex"),
        ])
        .env_clear()
        .current_dir(ibex.folder.path())
        .stdin(Stdio::null());
    let (mut server, address) = serving(shell);
    let client = client(&address, &token);
    let write = async |key: &str| {
        let body = json!({"content": format!("The spare part {key} is large. {}", "large ".repeat(1_000))});
        let client = client.clone().header("idempotency-key", key);
        client.post("/v1/memories", &body).await
    };
    assert_eq!(write("p1").await.status, StatusCode::CREATED);
    limit_files(&server, "4096");
    for _ in 0..2 {
        let refused = write("p2").await;
        let seen = (refused.status, refused.code());
        assert_eq!(
            seen,
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "IDEMPOTENCY_UNAVAILABLE".to_owned()
            )
        );
        assert!(!refused.header("retry-after").is_empty(), "{refused:?}");
    }
    let batch = json!({"memories": [{"content": "The spare part p3 is small."}]});
    let refused = client.post("/v1/memories/batch", &batch).await;
    let result = &refused.json()["results"][0];
    let seen = (&result["status"], &result["error"]["code"]);
    assert_eq!(seen, (&json!(503), &json!("SERVICE_DEGRADED")));
    // What needs no room goes on.
    assert_eq!(listed(&client).await.len(), 1);
    let question = json!({"query": "spare part"});
    assert_eq!(
        client.post("/v1/memories/search", &question).await.status,
        StatusCode::OK
    );
    assert_eq!(client.get("/health").await.status, StatusCode::OK);

    limit_files(&server, "unlimited");
    let stored = write("p2").await;
    let replayed = stored.header("x-idempotency-replayed") == "true";
    assert_eq!(
        (stored.status, replayed),
        (StatusCode::CREATED, false),
        "{stored:?}"
    );
    let stored = client.post("/v1/memories/batch", &batch).await;
    assert_eq!(stored.json()["results"][0]["status"], 201, "{stored:?}");
    assert_eq!(listed(&client).await.len(), 3);
    server.signal("TERM");
    assert!(server.wait().success());
}

/// Whoever writes the log to the disk that is full must not lose the server too.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let ibex = Ibex::new();
    let token = ibex.json(&["init"])["token"].as_str().unwrap().to_owned();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let mut server = ibex
        .command(&["serve"])
        .env("IBEX_SERVER__LISTEN", address.to_string())
        .env("IBEX_LOG__LEVEL", "trace")
        .env("OPENAI_API_KEY", "sk-invented")
        .stdout(full())
        .stderr(full())
        .spawn()
        .unwrap();
    let client = client(&address.to_string(), &token);
    let health = async || client.try_send(Method::GET, "/health", Bytes::new()).await;
    while health().await.is_none() {
        assert_eq!(server.try_wait().unwrap(), None, "it runs");
        tokio::task::yield_now().await;
    }
    for i in 0..3 {
        let body = json!({"content": format!("Note {i} of a full disk.")});
        assert_eq!(
            client.post("/v1/memories", &body).await.status,
            StatusCode::CREATED
        );
        let chat = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Which note?"}]});
        assert_eq!(
            client.post("/v1/context/preview", &chat).await.status,
            StatusCode::OK
        );
    }
    assert_eq!(server.try_wait().unwrap(), None, "it still runs");
    server.kill().unwrap();
    server.wait().unwrap();
}
