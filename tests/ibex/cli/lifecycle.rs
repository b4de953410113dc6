//! What an operator does to a running server: a changed configuration, a look at its health, its end.

use http::StatusCode;
use serde_json::{Value, json};

use super::Ibex;
use super::process::{Running, Unread};
use super::serving::{client, eventually, started};
use crate::support::Client;

/// A server whose settings stand in its folder's `ibex.toml` alone.
fn configured(ibex: &Ibex, env: &[(&str, &str)]) -> (Running, String) {
    let mut command = ibex.command(&["serve"]);
    command.envs([
        ("IBEX_SERVER__LISTEN", "127.0.0.1:0"),
        ("IBEX_LOG__FORMAT", "json"),
    ]);
    command.envs(env.iter().copied());
    started(&mut command)
}

const PROVIDER: &str =
    "[providers.openai]\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key = \"sk-invented\"\n";

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn code(client: &Client, model: &str) -> String {
    client
        .post("/v1/chat/completions", &chat(model))
        .await
        .code()
}

async fn ready(client: &Client) -> (StatusCode, Value) {
    let answer = client.get("/ready").await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn a_hangup_takes_over_policy_providers_limits_directive_defaults_and_log_level() {
    let ibex = Ibex::new();
    let token = ibex.json(&["init"])["token"].as_str().unwrap().to_owned();
    ibex.write("ibex.toml", PROVIDER);
    let (server, address) = configured(&ibex, &[]);
    let client = client(&address, &token);
    assert_eq!(code(&client, "gpt-4o").await, "PROVIDER_UNAVAILABLE");

    let changed = "[[policy.rules]]\nmodel = \"gpt-4o\"\neffect = \"deny\"\n
        [context]\nplatform_policy = \"Never name the harbour.\"\n
        [rate_limit.token]\nrpm = 3\n
        [log]\nlevel = \"debug\"\n";
    ibex.write("ibex.toml", &format!("{PROVIDER}{changed}"));
    server.signal("HUP");
    server.stderr.until("configuration read again");
    let seen = client.post("/v1/chat/completions", &chat("gpt-4o")).await;
    assert_eq!(seen.code(), "MODEL_NOT_ALLOWED");
    assert_eq!(seen.header("x-ratelimit-limit-requests"), "3");
    assert_eq!(code(&client, "gpt-4.1").await, "PROVIDER_UNAVAILABLE");
    let preview = client.post("/v1/context/preview", &chat("gpt-4.1")).await;
    let sent = preview.json()["messages"].to_string();
    assert!(sent.contains("Never name the harbour."), "{sent}");
    assert_eq!(code(&client, "gpt-4.1").await, "RATE_LIMITED");
    server.stderr.until("\"DEBUG\"");
}

/// Who collects JSON lines must be able to read every one of them, also what is said before the first request.
#[test]
fn what_is_odd_about_a_configuration_is_a_line_of_the_log() {
    let ibex = Ibex::new();
    ibex.json(&["init"]);
    ibex.write("ibex.toml", PROVIDER);
    let mut command = ibex.command(&["serve"]);
    command.envs([
        ("IBEX_SERVER__LISTEN", "127.0.0.1:0"),
        ("IBEX_LOG__FORMAT", "json"),
        ("IBEX_ENV", "production"),
    ]);
    let server = Running::start(&mut command);
    let told = server.stderr.until("listening");
    assert!(told.iter().any(|line| line.contains("loopback address")));
    for line in told {
        assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
    }
}

/// A log shipper may hang, and a pipe holds some hundred lines.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_nobody_up() {
    let ibex = Ibex::new();
    ibex.json(&["init"]);
    ibex.write("ibex.toml", PROVIDER);
    let mut command = ibex.command(&["serve"]);
    command.envs([
        ("IBEX_SERVER__LISTEN", "127.0.0.1:0"),
        ("IBEX_LOG__FORMAT", "json"),
    ]);
    let mut server = Unread::start(&mut command);
    let client = Client::new(server.address.parse().unwrap());
    let asked = 500;
    for _ in 0..asked {
        assert_eq!(client.get("/nowhere").await.status, StatusCode::NOT_FOUND);
    }
    let scraped = client.get("/metrics").await;
    assert!(memchr::memmem::find(&scraped.body, b"\nibex_log_lines_lost_total 0").is_some());
    server.signal("TERM");
    let rest = server.rest();
    let told = rest
        .lines()
        .filter(|line| line.contains("\"route\":\"none\""));
    assert_eq!(told.count(), asked, "nothing is lost, to the last line");
}

#[tokio::test]
async fn a_faulty_configuration_changes_nothing_and_readiness_says_so() {
    let ibex = Ibex::new();
    let token = ibex.json(&["init"])["token"].as_str().unwrap().to_owned();
    ibex.write("ibex.toml", PROVIDER);
    let (server, address) = configured(&ibex, &[]);
    let client = client(&address, &token);
    let standing = |ready: &Value| ready["checks"]["configuration"]["status"].clone();
    assert_eq!(standing(&ready(&client).await.1), "ok");

    let denied = "[[policy.rules]]\nmodel = \"*\"\neffect = \"deny\"\n";
    ibex.write(
        "ibex.toml",
        &format!("{PROVIDER}{denied}[context]\nlayuot = \"stable\"\n"),
    );
    server.signal("HUP");
    let line = server.stderr.until("the former one stays").pop().unwrap();
    assert!(
        line.contains("context.layuot") && line.contains("context.layout"),
        "{line}"
    );
    assert_eq!(code(&client, "gpt-4o").await, "PROVIDER_UNAVAILABLE");
    let scraped = client.get("/metrics").await;
    assert!(memchr::memmem::find(&scraped.body, b"\nibex_config_current 0").is_some());
    let (status, told) = ready(&client).await;
    assert_eq!(
        (status, &told["status"]),
        (StatusCode::OK, &json!("degraded"))
    );
    assert_eq!(standing(&told), "last_good");

    ibex.write(
        "ibex.toml",
        &format!("{PROVIDER}{denied}[server]\nmax_messages = 7\n"),
    );
    server.signal("HUP");
    let line = server.stderr.until("need a restart").pop().unwrap();
    assert!(line.contains("server.max_messages"), "{line}");
    assert_eq!(code(&client, "gpt-4o").await, "MODEL_NOT_ALLOWED");
    assert_eq!(standing(&ready(&client).await.1), "restart_needed");

    ibex.write("ibex.toml", PROVIDER);
    server.signal("HUP");
    server.stderr.until("configuration read again");
    let (_, told) = ready(&client).await;
    assert_eq!(
        (&told["status"], standing(&told)),
        (&json!("ok"), json!("ok"))
    );

    ibex.write("ibex.toml", "");
    server.signal("HUP");
    server.stderr.until("configuration read again");
    assert_eq!(code(&client, "gpt-4o").await, "PROVIDER_NOT_CONFIGURED");
}

#[tokio::test]
async fn who_is_on_the_way_out_says_so_and_still_answers_for_a_while() {
    let ibex = Ibex::new();
    let token = ibex.json(&["init"])["token"].as_str().unwrap().to_owned();
    ibex.write("ibex.toml", PROVIDER);
    let (mut server, address) = configured(&ibex, &[("IBEX_SERVER__DRAIN_DELAY_MS", "600000")]);
    let client = client(&address, &token);
    let url = format!("http://{address}");
    assert_eq!(ibex.ok(&["health", "--url", &url, "--ready"]), "ok\n");
    assert_eq!(client.get("/health").await.header("connection"), "");

    server.signal("TERM");
    let seen = eventually(
        async || client.get("/ready").await,
        |answer| answer.status == StatusCode::SERVICE_UNAVAILABLE,
    )
    .await;
    assert_eq!(seen.json()["status"], "draining");
    // Balancers that have not noticed yet are served, and let go of their connections.
    let late = client.get("/v1/memories").await;
    assert_eq!(
        (late.status, late.header("connection")),
        (StatusCode::OK, "close")
    );
    assert_eq!(ibex.ok(&["health", "--url", &url]), "ok\n");
    let told = ibex.fails(&["health", "--url", &url, "--ready"], 1);
    assert!(told.contains("503 (draining)"), "{told}");

    server.signal("TERM");
    assert!(server.wait().success());
    let told = ibex.fails(&["health", "--url", &url], 1);
    assert!(told.contains("connection refused"), "{told}");
}
