//! What the commands change reaches a running server without a restart.

use std::process::Command;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::Ibex;
use super::process::Running;
use crate::support::{Answer, Client};

/// What other processes changed is seen within this time.
const WITHIN: Duration = Duration::from_secs(1);

/// A server over the folder's store, and its address.
pub(super) fn serve(ibex: &Ibex) -> (Running, String) {
    serving(ibex.command(&["serve"]))
}

/// A server over a new store, and its address.
pub(crate) fn serve_fresh(ibex: &Ibex) -> (Running, String) {
    ibex.json(&["init"]);
    serve(ibex)
}

/// The address of a server that `command` starts.
pub(super) fn serving(mut command: Command) -> (Running, String) {
    command.envs([
        ("IBEX_SERVER__LISTEN", "127.0.0.1:0"),
        ("IBEX_LOG__FORMAT", "json"),
        ("IBEX_RATE_LIMIT__DEFAULT_RPM", "1000000"),
        // Nothing listens there; a preview asks nobody.
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
        ("OPENAI_API_KEY", "sk-invented"),
    ]);
    started(&mut command)
}

/// The same for a command with all of its settings, a log in JSON among them.
pub(crate) fn started(command: &mut Command) -> (Running, String) {
    let server = Running::start(command);
    let line = server.stderr.until("\"listening\"").pop().unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["address"].as_str().unwrap().to_owned();
    (server, address)
}

pub(super) fn client(address: &str, token: &str) -> Client {
    Client::new(address.parse().unwrap()).header("authorization", &format!("Bearer {token}"))
}

/// Asks until the answer is the wanted one, as long as a change may take to be seen.
pub(super) async fn eventually(
    mut ask: impl AsyncFnMut() -> Answer,
    wanted: impl Fn(&Answer) -> bool,
) -> Answer {
    let began = Instant::now();
    loop {
        // Taken before the request: an answer to a request of after the limit does not count.
        let late = began.elapsed() > WITHIN;
        let answer = ask().await;
        if wanted(&answer) || late {
            return answer;
        }
    }
}

#[tokio::test]
async fn tokens_are_created_and_revoked_under_a_running_server() {
    let ibex = Ibex::new();
    let first = ibex.json(&["init"]);
    let (mut server, address) = serve(&ibex);
    let known = client(&address, first["token"].as_str().unwrap());
    assert_eq!(known.get("/v1/memories").await.status, StatusCode::OK);

    let made = ibex.json(&[
        "token",
        "create",
        "--agent",
        "default",
        "--permission",
        "all",
    ]);
    let client = client(&address, made["token"].as_str().unwrap());
    let seen = eventually(
        async || client.get("/v1/memories").await,
        |answer| answer.status == StatusCode::OK,
    )
    .await;
    assert_eq!(seen.status, StatusCode::OK, "{seen:?}");

    ibex.ok(&["token", "revoke", made["id"].as_str().unwrap()]);
    let seen = eventually(
        async || client.get("/v1/memories").await,
        |answer| answer.status == StatusCode::UNAUTHORIZED,
    )
    .await;
    assert_eq!(seen.code(), "INVALID_TOKEN", "{seen:?}");
    assert_eq!(known.get("/v1/memories").await.status, StatusCode::OK);
    server.signal("TERM");
    assert!(server.wait().success());
}

#[tokio::test]
async fn directives_and_memories_reach_a_running_server() {
    let ibex = Ibex::new();
    let ready = ibex.json(&["init"]);
    let (_server, address) = serve(&ibex);
    let client = client(&address, ready["token"].as_str().unwrap());
    let question = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "When does the harbour office of Brandtholm close?"}]});
    let preview = async || client.post("/v1/context/preview", &question).await;
    let contains = |answer: &Answer, text: &str| {
        answer.json()["messages"][0]["content"]
            .as_str()
            .is_some_and(|content| content.contains(text))
    };
    assert!(!contains(&preview().await, "Answer in verse."));

    ibex.write("directive.txt", "Answer in verse.");
    ibex.ok(&["directive", "add", "directive.txt"]);
    assert!(
        !contains(&preview().await, "Answer in verse."),
        "not promoted yet"
    );
    ibex.ok(&["directive", "promote", "1"]);
    let seen = eventually(preview, |a| contains(a, "Answer in verse.")).await;
    assert!(contains(&seen, "Answer in verse."), "{seen:?}");

    let memory = "The harbour office of Brandtholm closes at six.";
    ibex.ok(&["memory", "add", memory]);
    let seen = eventually(preview, |a| contains(a, memory)).await;
    assert!(contains(&seen, memory), "{seen:?}");
}
