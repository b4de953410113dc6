//! A scene: a service in the stable layout, a provider that keeps what it was sent, and clients that keep their histories.

use http::StatusCode;
use ibex::config::{Config, ModelConfig, RecallPlace, Switch, SystemRole};
use ibex::openai::ChatRequest;
use ibex::openai::edits::json_inner;
use ibex::request::context::regions::FRAMING;
use ibex::session::{Chain, Lane, LaneKey, SessionKey};
use ibex::telemetry::metrics::Exposition;
use serde_json::{Value, json};

use crate::support::{Answer, Client, Overrides, TestApp, Upstream, patient, soon};

/// What an answer of the scripted provider adds to a history.
pub(super) const REPLY: &str = r#"{"role":"assistant","content":"fine"}"#;
pub(super) const CHAT: &str = "/v1/chat/completions";

/// Whatever is found is recalled, and nothing is in the prefix but the directive: what a turn gets follows from what is stored.
pub(super) fn plain(config: &mut Config) {
    patient(config);
    config.context.recall_gate = Switch::Off;
    config.context.relevance_floor = 0.0;
    config.context.snapshot_tokens = 0;
    config.store.poll_interval_ms = 5;
}

/// The same with a snapshot at the opening of a session.
pub(super) fn with_snapshot(config: &mut Config) {
    plain(config);
    config.context.snapshot_tokens = 1_500;
}

/// A model of this kind.
pub(super) fn model(pattern: &str, role: SystemRole, recall: RecallPlace) -> ModelConfig {
    ModelConfig {
        pattern: pattern.to_owned(),
        provider: None,
        upstream_model: None,
        context_window: None,
        max_output_tokens: None,
        tokenizer: None,
        system_role: Some(role),
        recall: Some(recall),
    }
}

/// Asks again until it holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(super) struct Scene {
    pub(super) app: TestApp,
    pub(super) upstream: Upstream,
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self::with(plain, Overrides::default()).await
    }

    pub(super) async fn with(edit: impl FnOnce(&mut Config), overrides: Overrides) -> Self {
        Self::before(Upstream::echo_ok().await, edit, overrides).await
    }

    /// With a provider of the test's own.
    pub(super) async fn before(
        upstream: Upstream,
        edit: impl FnOnce(&mut Config),
        overrides: Overrides,
    ) -> Self {
        let app = TestApp::with(&upstream.url(), edit, overrides).await;
        Self { app, upstream }
    }

    /// Another process over the same store: nothing that was in memory is left.
    pub(super) async fn restarted(self, edit: impl FnOnce(&mut Config)) -> Self {
        let Self { app, upstream } = self;
        let app = app
            .restarted(&upstream.url(), edit, Overrides::default())
            .await;
        Self { app, upstream }
    }

    /// The same after a crash, which took what `damage` deletes.
    pub(super) async fn crashed(
        self,
        edit: impl FnOnce(&mut Config),
        damage: Option<&str>,
    ) -> Self {
        self.restarted(|config| {
            edit(config);
            let conn = rusqlite::Connection::open(&config.store.path).unwrap();
            conn.pragma_update(None, "foreign_keys", true).unwrap();
            let crash = Some("UPDATE session_runs SET whole = FALSE");
            for statement in [crash, damage].into_iter().flatten() {
                assert!(conn.execute(statement, []).unwrap() > 0, "{statement}");
            }
        })
        .await
    }

    /// Everything frozen is lost from memory, as after a restart; the store has all of it.
    pub(super) async fn lose_memory(&self) {
        self.app.app.sessions.records.flushed().await;
        let cache = self.app.app.sessions.in_process.as_ref();
        cache.expect("the process's own cache").clear();
    }

    /// A client in a session of its own naming.
    pub(super) fn talk(&self, session: &str) -> Talk {
        Talk::of(self.app.client().header("x-ibex-session-id", session))
    }

    /// Stores a memory for everybody.
    pub(super) async fn remember(&self, content: &str) -> String {
        remember(&self.app.client(), content).await
    }

    /// Forgets it.
    pub(super) async fn forget(&self, id: &str) {
        let path = format!("/v1/memories/{id}");
        let answer = self.app.client().delete(&path).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
    }

    /// Adds a directive and makes it the active one.
    pub(super) async fn direct(&self, content: &str) -> u64 {
        let body = json!({"content": content, "promote": true});
        let answer = self.app.client().post("/v1/directives", &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
        answer.json()["version"].as_u64().unwrap()
    }

    /// A session as it is shown, when everything noted of it is stored.
    pub(super) async fn session(&self, client: &Client, id: &str) -> Answer {
        self.app.app.sessions.records.flushed().await;
        client.get(&format!("/v1/sessions/{id}")).await
    }

    /// Number and reason of each epoch of a session's one lane.
    pub(super) async fn epochs(&self, id: &str) -> Vec<(u64, String)> {
        let shown = self.session(&self.app.client(), id).await.json();
        let lanes = shown["lanes"].as_array().unwrap();
        assert_eq!(lanes.len(), 1);
        let epochs = lanes[0]["epochs"].as_array().unwrap().iter();
        epochs
            .map(|epoch| {
                let reason = epoch["reason"].as_str().unwrap_or_default();
                (epoch["epoch"].as_u64().unwrap(), reason.to_owned())
            })
            .collect()
    }

    /// The value of one line of the metrics; 0 when it is not there yet.
    pub(super) fn metric(&self, line: &str) -> u64 {
        let text = self.app.app.metrics.render(Exposition::Text).unwrap();
        text.lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(' '))
            .map_or(0, |value| value.parse().unwrap())
    }

    pub(super) fn rotations(&self, reason: &str) -> u64 {
        self.metric(&format!(
            "ibex_session_epochs_rotated_total{{reason=\"{reason}\"}}"
        ))
    }

    pub(super) fn events(&self, event: &str) -> u64 {
        self.metric(&format!("ibex_session_events_total{{event=\"{event}\"}}"))
    }

    /// Nothing that was sent before was left out or changed unannounced.
    pub(super) fn kept_the_law(&self) -> bool {
        self.metric("ibex_session_prefix_broken_total") == 0
    }

    /// The key of a session of the service's agent without a user.
    pub(super) fn key(&self, session: &str) -> SessionKey {
        SessionKey {
            org: self.app.org,
            agent: self.app.agent,
            user: None,
            id: session.parse().unwrap(),
        }
    }

    pub(super) fn lane(&self, session: &str) -> LaneKey {
        LaneKey {
            session: self.key(session),
            lane: Lane::new("openai", "gpt-4o"),
        }
    }

    pub(super) fn nonce(&self, session: &SessionKey) -> String {
        let secret = &self.app.app.sessions.secret;
        secret.nonce(session, 1).as_str().to_owned()
    }

    /// Another handle on the store's file.
    pub(super) fn sql(&self) -> rusqlite::Connection {
        let conn = rusqlite::Connection::open(&self.app.app.config.store.path).unwrap();
        conn.pragma_update(None, "foreign_keys", true).unwrap();
        conn
    }

    /// A block with this one memory, as it stands in a JSON string, at the last user message of `talk`.
    pub(super) fn block(
        &self,
        talk: &Talk,
        session: &SessionKey,
        id: &str,
        content: &str,
    ) -> String {
        let chat = ChatRequest::parse(talk.body().into(), 1_000).unwrap();
        let secret = &self.app.app.sessions.secret;
        let chain = Chain::of(&chat, session.org, secret);
        let assembly = secret.assembly(&chain.turns().last().unwrap().anchor);
        let short = last_six(id);
        let nonce = self.nonce(session);
        json_inner(&format!(
            "<ibex_recall nonce=\"{nonce}\" turn=\"{assembly}\">\n<memory ref=\"{short}\" kind=\"factual\">{content}</memory>\n</ibex_recall>"
        ))
    }
}

/// Stores a memory.
pub(super) async fn remember(client: &Client, content: &str) -> String {
    let body = json!({"content": content, "category": "factual"});
    let answer = client.post("/v1/memories", &body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// What stands for a memory in an envelope.
pub(super) fn last_six(id: &str) -> &str {
    id.split_at(id.len() - 6).1
}

/// Framing, directive and session line, as they stand in a JSON string.
pub(super) fn region_a(directive: &str, nonce: &str) -> String {
    let text = format!("{FRAMING}\n\n{directive}\n\nThis session's nonce: {nonce}");
    json_inner(&text)
}

pub(super) fn says(role: &str, text: &str) -> String {
    format!(r#"{{"role":"{role}","content":"{}"}}"#, json_inner(text))
}

/// A conversation as a client keeps it.
#[derive(Clone)]
pub(super) struct Talk {
    pub(super) client: Client,
    pub(super) model: String,
    /// Each message as it is written.
    pub(super) messages: Vec<String>,
}

impl Talk {
    pub(super) fn of(client: Client) -> Self {
        Self {
            client,
            model: "gpt-4o".to_owned(),
            messages: Vec::new(),
        }
    }

    pub(super) fn with_model(mut self, model: &str) -> Self {
        model.clone_into(&mut self.model);
        self
    }

    pub(super) fn push(&mut self, message: impl Into<String>) -> &mut Self {
        self.messages.push(message.into());
        self
    }

    pub(super) fn body(&self) -> String {
        let messages = self.messages.join(",");
        format!(r#"{{"model":"{}","messages":[{messages}]}}"#, self.model)
    }

    /// One request with the history as it is.
    pub(super) async fn send(&self, scene: &Scene) -> Sent {
        let answer = self.client.post_raw(CHAT, self.body()).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        Sent::of(answer, &scene.upstream.last().request.body)
    }

    /// The user says something and is answered.
    pub(super) async fn ask(&mut self, scene: &Scene, text: &str) -> Sent {
        self.push(says("user", text));
        let sent = self.send(scene).await;
        self.push(REPLY);
        sent
    }

    /// What the request would become.
    pub(super) async fn preview(&self) -> Value {
        let answer = self
            .client
            .post_raw("/v1/context/preview", self.body())
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        answer.json()
    }
}

/// An answer and what the provider was sent.
pub(super) struct Sent {
    pub(super) answer: Answer,
    pub(super) body: String,
}

impl Sent {
    pub(super) fn of(answer: Answer, body: &[u8]) -> Self {
        let body = String::from_utf8(body.to_vec()).unwrap();
        Self { answer, body }
    }

    /// The inside of the `messages` array.
    pub(super) fn messages(&self) -> &str {
        let (_, rest) = self.body.split_once(r#""messages":["#).unwrap();
        rest.strip_suffix("]}").unwrap()
    }

    pub(super) fn json(&self) -> Vec<Value> {
        serde_json::from_str(&format!("[{}]", self.messages())).unwrap()
    }

    pub(super) fn told(&self, name: &str) -> &str {
        self.answer.header(&format!("x-ibex-{name}"))
    }

    pub(super) fn epoch(&self) -> &str {
        self.told("epoch")
    }

    /// Memories in the request, and those that it is the first to send.
    pub(super) fn counts(&self) -> (&str, &str) {
        (self.told("memories-injected"), self.told("memories-new"))
    }

    /// Envelopes of this name, as they stand in the body.
    pub(super) fn envelopes(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<ibex_{name} "), format!("</ibex_{name}>"));
        let starts = self.body.match_indices(&open);
        starts
            .map(|(start, _)| {
                let rest = self.body.split_at(start).1;
                rest.split_at(rest.find(&close).unwrap() + close.len()).0
            })
            .collect()
    }

    pub(super) fn recalls(&self) -> Vec<&str> {
        self.envelopes("recall")
    }
}

/// What was sent before is sent again, and goes on.
#[track_caller]
pub(super) fn assert_extends(before: &Sent, after: &Sent) {
    assert!(
        after.messages().starts_with(before.messages()),
        "\nbefore: {}\nafter:  {}",
        before.messages(),
        after.messages()
    );
}
