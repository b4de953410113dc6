//! The table of context outcomes, row by row, through the running service: what the headers say, what they leave out, and that the
//! provider is called with the directive in every row.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ibex::auth::Scope;
use ibex::config::{Config, Effect, RuleConfig};
use ibex::memory::PartitionKey;
use ibex::memory::search::{BranchError, ColdBranch, Hit, Query};
use ibex::seams::{Clock, SystemClock};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fakes::{Act, FakeBranch, FakeDirective, FakeEmbedder, directive, hit, memory};
use crate::support::{Answer, Client, Overrides, TestApp, Upstream, assembled, in_assembled};

const DIRECTIVE: &str = "Answer like a lighthouse keeper.";

/// The headers of a row, absent ones as empty texts.
fn told(answer: &Answer) -> [&str; 7] {
    [
        "x-ibex-context-status",
        "x-ibex-context-degradation",
        "x-ibex-context-fallback",
        "x-ibex-context-reason",
        "x-ibex-memories-injected",
        "x-ibex-memories-new",
        "x-ibex-memories-excluded",
    ]
    .map(|name| answer.header(name))
}

fn question(text: &str) -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]})
}

fn ask() -> Value {
    question("Where is the spare key?")
}

/// One chat through a service with these parts: the answer and the body the provider got.
async fn chat(
    edit: impl FnOnce(&mut Config),
    overrides: Overrides,
    headers: &[(&str, &str)],
) -> (Answer, Value) {
    let upstream = Upstream::echo_ok().await;
    let edit = |config: &mut Config| {
        in_assembled(config);
        edit(config);
    };
    let app = TestApp::with(&upstream.url(), edit, overrides).await;
    let client = headers.iter().fold(app.client(), |client, (name, value)| {
        client.header(name, value)
    });
    let answer = client.post("/v1/chat/completions", &ask()).await;
    assert_eq!((answer.status.as_u16(), upstream.hits()), (200, 1));
    (answer, upstream.last().request.json())
}

/// Branches that act like this, with a known directive or none. They know of no scope, so they find nothing.
fn parts(hot: Act, cold: Act, known: bool) -> Overrides {
    Overrides {
        directives: Some(FakeDirective::new(
            Act::Answer,
            directive(DIRECTIVE).filter(|_| known),
        )),
        hot: Some(FakeBranch::new(hot, Vec::new())),
        cold: Some(FakeBranch::new(cold, Vec::new())),
        embedder: Some(Arc::new(FakeEmbedder(Act::Answer))),
        ..Overrides::default()
    }
}

fn has_directive(sent: &Value) -> bool {
    sent["messages"][0] == json!({"role": "system", "content": DIRECTIVE})
}

#[tokio::test]
async fn missing_branches_are_told_and_the_directive_goes_out() {
    use Act::{Answer, Fail, GiveUp, Panic};
    let rows: [(Overrides, [&str; 4], bool); 8] = [
        (
            parts(Answer, Fail, true),
            ["partial", "L1", "false", "cold=error"],
            true,
        ),
        (
            parts(Answer, GiveUp, true),
            ["partial", "L1", "false", "cold=timeout"],
            true,
        ),
        (
            parts(Panic, Answer, true),
            ["partial", "L1", "false", "hot=error"],
            true,
        ),
        (
            parts(Fail, GiveUp, true),
            ["directive-only", "L2", "true", "hot=error,cold=timeout"],
            true,
        ),
        (
            parts(Panic, Panic, true),
            ["directive-only", "L2", "true", "hot=error,cold=error"],
            true,
        ),
        (
            parts(GiveUp, Fail, false),
            ["history-only", "L2", "true", "hot=timeout,cold=error"],
            false,
        ),
        (
            Overrides {
                directives: Some(FakeDirective::new(Panic, None)),
                ..parts(Answer, Answer, true)
            },
            ["partial", "L1", "false", "directive=error"],
            false,
        ),
        (
            Overrides {
                embedder: Some(Arc::new(FakeEmbedder(Panic))),
                ..parts(Answer, Answer, true)
            },
            ["partial", "L1", "false", "embedding=error"],
            true,
        ),
    ];
    for (overrides, expected, directed) in rows {
        let (answer, sent) = chat(assembled, overrides, &[]).await;
        let [status, level, fallback, reason, injected, new, excluded] = told(&answer);
        assert_eq!([status, level, fallback, reason], expected);
        assert_eq!([injected, new, excluded], ["0"; 3], "{reason}");
        assert_eq!(has_directive(&sent), directed, "{reason}");
        let tokens: u32 = answer.header("x-ibex-context-tokens").parse().unwrap();
        assert_eq!(tokens > 0, directed, "{reason}");
        assert_eq!(
            sent["messages"].as_array().unwrap().len(),
            1 + usize::from(directed)
        );
    }
}

#[tokio::test]
async fn branches_that_hang_cost_their_limit_and_not_the_request() {
    // The wall is the usual one; the end is far behind it, so that a busy machine does not turn this into a missed deadline.
    let wall = |config: &mut Config| {
        assembled(config);
        config.context.deadline_ms = 40;
    };
    let (answer, sent) = chat(wall, parts(Act::Hang, Act::Hang, true), &[]).await;
    assert_eq!(
        told(&answer)[..4],
        ["directive-only", "L2", "true", "hot=timeout,cold=timeout"]
    );
    assert!(has_directive(&sent));
    let slow = Overrides {
        directives: Some(FakeDirective::new(Act::Hang, directive(DIRECTIVE))),
        ..parts(Act::Answer, Act::Answer, true)
    };
    let short = |config: &mut Config| {
        assembled(config);
        config.context.directive_timeout_ms = 1;
    };
    let (answer, sent) = chat(short, slow, &[]).await;
    assert_eq!(
        told(&answer)[..4],
        ["partial", "L1", "false", "directive=timeout"]
    );
    assert_eq!(
        sent["messages"],
        ask()["messages"],
        "the client's own messages and nothing else"
    );
}

/// A clock that panics once, when it is told to: the next to read it is the assembly.
#[derive(Default)]
struct Trap(AtomicBool);

impl fmt::Debug for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trap")
    }
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.0.swap(false, Ordering::SeqCst), "assembly panics");
        SystemClock.now()
    }
}

/// A cold branch that arms the trap.
struct Arming(Arc<Trap>);

#[async_trait]
impl ColdBranch for Arming {
    async fn cold(
        &self,
        _: &Scope,
        _: &Query,
        _: usize,
        _: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.0.0.store(true, Ordering::SeqCst);
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_panic_inside_the_assembly_is_no_error_of_the_request() {
    let trap = Arc::new(Trap::default());
    let overrides = Overrides {
        clock: Some(trap.clone()),
        cold: Some(Arc::new(Arming(trap))),
        ..parts(Act::Answer, Act::Answer, true)
    };
    let (answer, sent) = chat(assembled, overrides, &[]).await;
    assert_eq!(
        told(&answer)[..5],
        ["directive-only", "L3", "true", "internal", "0"]
    );
    assert!(has_directive(&sent));
}

/// A branch that keeps its thread until the deadline is over.
struct Blocking;

#[async_trait]
impl ColdBranch for Blocking {
    async fn cold(
        &self,
        _: &Scope,
        _: &Query,
        _: usize,
        end: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        let over = end + std::time::Duration::from_millis(6);
        while Instant::now() < over {
            std::hint::spin_loop();
        }
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn past_the_deadline_only_the_directive_goes_out() {
    let overrides = Overrides {
        directives: Some(FakeDirective::at_hand(directive(DIRECTIVE))),
        cold: Some(Arc::new(Blocking)),
        ..parts(Act::Answer, Act::Answer, true)
    };
    let (answer, sent) = chat(|_| {}, overrides, &[]).await;
    assert_eq!(
        told(&answer)[..5],
        ["directive-only", "L3", "true", "deadline", "0"]
    );
    assert!(has_directive(&sent));
}

async fn write(client: &Client, content: &str) -> String {
    let answer = client
        .post("/v1/memories", &json!({"content": content}))
        .await;
    assert_eq!(answer.status.as_u16(), 201, "{:?}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_sound_assembly_says_why_it_injects_nothing() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), assembled, Overrides::default()).await;
    let client = app.client();
    let told_for = async |body: Value| {
        let answer = client.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status.as_u16(), 200);
        told(&answer).map(str::to_owned)
    };
    assert_eq!(
        told_for(ask()).await,
        ["full", "L0", "false", "none_stored", "0", "0", "0"]
    );
    write(
        &client,
        "The spare key hangs behind the blue door in the shed.",
    )
    .await;
    assert_eq!(
        told_for(ask()).await,
        ["full", "L0", "false", "", "1", "1", "0"]
    );
    let sent = upstream.last().request.json();
    assert!(
        sent["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("behind the blue door")
    );
    let unrelated = told_for(question(
        "Summarise the plot of a famous opera about a barber.",
    ))
    .await;
    assert_eq!(
        unrelated[..5],
        ["full", "L0", "false", "none_relevant", "0"]
    );
    let silent =
        told_for(json!({"model": "gpt-4o", "messages": [{"role": "user", "content": []}]})).await;
    assert_eq!(silent[..5], ["full", "L0", "false", "no_question", "0"]);
    assert_eq!(upstream.hits(), 4);
}

/// Only the status is told of requests that get no memory by wish or by rule.
fn only_status(answer: &Answer, status: &str) {
    assert_eq!(answer.header("x-ibex-context-status"), status);
    let others: Vec<&str> = answer
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("x-ibex-context-") || name.starts_with("x-ibex-memories-"))
        .filter(|name| *name != "x-ibex-context-status")
        .collect();
    assert_eq!(others, [""; 0]);
}

#[tokio::test]
async fn a_request_may_ask_for_no_memory_and_keeps_its_directive() {
    for value in ["1", "true", "YES", " on "] {
        let broken = parts(Act::Panic, Act::Panic, true);
        let (answer, sent) = chat(assembled, broken, &[("x-ibex-skip-memory", value)]).await;
        only_status(&answer, "skipped");
        assert!(has_directive(&sent), "{value}");
    }
    for value in ["0", "false", "no", "", "2", "yes please"] {
        let (answer, _) = chat(
            assembled,
            parts(Act::Answer, Act::Answer, true),
            &[("x-ibex-skip-memory", value)],
        )
        .await;
        assert_eq!(answer.header("x-ibex-context-status"), "full", "{value:?}");
    }
    let broken = Overrides {
        directives: Some(FakeDirective::new(Act::Panic, None)),
        ..parts(Act::Panic, Act::Panic, true)
    };
    let (answer, sent) = chat(assembled, broken, &[("x-ibex-skip-memory", "1")]).await;
    only_status(&answer, "skipped");
    assert_eq!(sent["messages"], ask()["messages"]);
}

#[tokio::test]
async fn context_is_switched_off_by_configuration_and_by_policy() {
    let off = |config: &mut Config| {
        assembled(config);
        config.context.enabled = false;
    };
    let (answer, sent) = chat(off, parts(Act::Panic, Act::Panic, true), &[]).await;
    only_status(&answer, "disabled");
    assert!(has_directive(&sent));

    let rule = |config: &mut Config| {
        assembled(config);
        config.policy.rules.push(RuleConfig {
            org: None,
            priority: 1,
            model: "gpt-4*".to_owned(),
            effect: Effect::Allow,
            context: Some(false),
        });
    };
    let (answer, sent) = chat(rule, parts(Act::Panic, Act::Panic, true), &[]).await;
    only_status(&answer, "disabled");
    assert!(has_directive(&sent));
    let (answer, _) = chat(
        rule,
        parts(Act::Panic, Act::Panic, true),
        &[("x-ibex-skip-memory", "1")],
    )
    .await;
    only_status(&answer, "skipped");
}

#[tokio::test]
async fn every_answer_names_its_session_streams_too() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), assembled, Overrides::default()).await;
    let mut body = ask();
    body["stream"] = json!(true);
    let answer = app
        .client()
        .header("x-ibex-session-id", "night-watch")
        .post("/v1/chat/completions", &body)
        .await;
    assert_eq!(answer.header("x-ibex-session-id"), "night-watch");
    assert_eq!(told(&answer)[..4], ["full", "L0", "false", "none_stored"]);
    let minted = app.client().post("/v1/chat/completions", &ask()).await;
    assert!(!minted.header("x-ibex-session-id").is_empty());
    let both = app
        .client()
        .header("x-ibex-session-id", "a")
        .another("x-ibex-session-id", "b");
    let doubled = both.post("/v1/chat/completions", &ask()).await;
    assert!(!["", "a", "b"].contains(&doubled.header("x-ibex-session-id")));
}

/// A branch that finds a memory of the scope that asks, and one beside it.
struct Careless(Arc<FakeBranch>);

#[async_trait]
impl ColdBranch for Careless {
    async fn cold(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        end: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.0.cold(scope, query, limit, end).await?;
        let own = PartitionKey::for_write(scope);
        let other = PartitionKey {
            user: Some("somebody-else".parse().unwrap()),
            ..own.clone()
        };
        Ok(vec![
            hit(memory(own, "The spare key is under the mat.")),
            hit(memory(other, "The spare key is a secret of somebody else.")),
        ])
    }
}

#[tokio::test]
async fn a_branch_is_given_the_verified_scope_and_is_not_trusted() {
    let upstream = Upstream::echo_ok().await;
    let cold = FakeBranch::new(Act::Answer, Vec::new());
    let overrides = Overrides {
        cold: Some(Arc::new(Careless(cold.clone()))),
        ..parts(Act::Answer, Act::Answer, true)
    };
    let app = TestApp::with(&upstream.url(), assembled, overrides).await;
    for user in [None, Some("ann")] {
        let client = user
            .into_iter()
            .fold(app.client(), |c, user| c.header("x-ibex-user-id", user));
        let answer = client.post("/v1/chat/completions", &ask()).await;
        assert_eq!(told(&answer)[..5], ["full", "L0", "false", "", "1"]);
        let sent = upstream.last().request.json().to_string();
        assert!(
            sent.contains("under the mat") && !sent.contains("somebody else"),
            "{sent}"
        );
        let scope = cold.scopes().pop().unwrap();
        assert_eq!((scope.org(), scope.agent()), (app.org, app.agent));
        assert_eq!(scope.user().map(|u| u.as_str()), user);
    }
    assert_eq!(cold.scopes().len(), 2);
}

#[tokio::test]
async fn a_store_that_fails_is_a_missing_branch_and_no_refusal() {
    let upstream = Upstream::echo_ok().await;
    let edit = |config: &mut Config| {
        assembled(config);
        // Credential and directive stay known: no news of their own making takes them away.
        config.store.poll_interval_ms = 3_600_000;
    };
    let app = TestApp::with(&upstream.url(), edit, Overrides::default()).await;
    let added = app
        .client()
        .post(
            "/v1/directives",
            &json!({"content": DIRECTIVE, "promote": true}),
        )
        .await;
    assert_eq!(added.status.as_u16(), 201);
    // Credential and directive are known from a first request; the memories have not been loaded.
    let first = app
        .client()
        .header("x-ibex-skip-memory", "1")
        .post("/v1/chat/completions", &ask())
        .await;
    only_status(&first, "skipped");
    app.store.close().await.unwrap();
    let answer = app.client().post("/v1/chat/completions", &ask()).await;
    assert_eq!(answer.status.as_u16(), 200);
    assert_eq!(
        told(&answer)[..5],
        ["directive-only", "L2", "true", "hot=error,cold=error", "0"]
    );
    assert!(has_directive(&upstream.last().request.json()));
}
