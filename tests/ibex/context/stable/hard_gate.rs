//! The hard gate: fifty turns of one session through everything that may happen to it. The prefix has one hash an epoch, epochs change
//! for the reasons that the design names and for no other, and every request goes on from the bytes of the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use ibex::config::{Config, ModelConfig, RecallPlace, SystemRole};
use ibex::seams::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Overrides, TestApp, Upstream, items, parsed, patient};

/// A clock that is moved by hand.
#[derive(Debug)]
struct HandClock(AtomicI64);

impl HandClock {
    fn at(start: &str) -> Arc<Self> {
        let start: Timestamp = start.parse().unwrap();
        Arc::new(Self(AtomicI64::new(start.as_microsecond())))
    }

    fn forward(&self, time: SignedDuration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::Relaxed);
    }

    fn date(&self) -> String {
        self.now().strftime("%A, %Y-%m-%d").to_string()
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

const SESSION: &str = "household-42";
const DIRECTIVE: &str = "Answer in one sentence.";
/// What is forgotten; nobody but the memory says it.
const FORGOTTEN: &str = "behind the blue door";
const OLD_KEY: &str = "The spare key hangs behind the blue door in the shed.";
const NEW_KEY: &str = "The spare key now lies under the flat stone by the gate.";

/// Turns of the session.
const TURNS: usize = 50;
/// Half of the session on either side of midnight.
const STEP: SignedDuration = SignedDuration::from_mins(1);

/// What happens before a turn.
const CORRECTED: usize = 14;
const NEW_TOOLS: usize = 18;
const CACHE_LOST: usize = 21;
const DELETED: usize = 32;
const RESTARTED: usize = 41;

/// What is written on the way, and when it is asked for.
const WRITTEN: [(usize, &str, &str); 4] = [
    (
        3,
        "The code of the garage door is 4417.",
        "What is the code of the garage door?",
    ),
    (
        9,
        "Ada sees the dentist on Thursday at nine.",
        "When does Ada see the dentist?",
    ),
    (
        26,
        "The plumber's name is Oskar Lindqvist.",
        "What is the plumber's name?",
    ),
    (
        45,
        "The cat gets her medicine with tuna.",
        "How does the cat get her medicine?",
    ),
];

/// A kind of model, and whether the memory that is to be forgotten is there when the session opens: then it is in the snapshot, else in
/// the block of a turn.
#[derive(Clone, Copy)]
struct Run {
    system_role: SystemRole,
    recall: RecallPlace,
    early: bool,
}

/// One request as it came and as it went out.
struct Exchange {
    client: Vec<Bytes>,
    sent: Vec<Bytes>,
    body: Bytes,
    epoch: String,
    prefix: String,
}

struct Session {
    upstream: Upstream,
    app: TestApp,
    clock: Arc<HandClock>,
    run: Run,
    tools: Value,
    /// The conversation without the client's system text.
    messages: Vec<Value>,
    exchanges: Vec<Exchange>,
    /// Of every process that has stopped: epochs rotated for `forget` and otherwise, broken prefixes, changed client prefixes.
    counted: [u64; 4],
}

impl Session {
    async fn start(run: Run) -> Self {
        let upstream = Upstream::echo_ok().await;
        let clock = HandClock::at("2027-03-14T23:35:00Z");
        let app = TestApp::with(&upstream.url(), edit(run), overrides(&clock)).await;
        let client = app.client();
        created(
            &client,
            "/v1/directives",
            &json!({"content": DIRECTIVE, "promote": true}),
        )
        .await;
        Self {
            upstream,
            app,
            clock,
            run,
            tools: tools(&["switch"]),
            messages: Vec::new(),
            exchanges: Vec::new(),
            counted: [0; 4],
        }
    }

    async fn remember(&self, content: &str) -> String {
        let memory = json!({ "content": content });
        let answer = created(&self.app.client(), "/v1/memories", &memory).await;
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    async fn say(&mut self, message: Value) {
        self.messages.push(message);
        self.ask().await;
    }

    /// One request with all that was said so far.
    async fn ask(&mut self) {
        let system = format!("You help in the house. Today is {}.", self.clock.date());
        let mut messages = vec![json!({"role": "system", "content": system})];
        messages.extend_from_slice(&self.messages);
        let body = json!({"model": "house", "tools": self.tools, "messages": messages}).to_string();
        let client = self.app.client().header("x-ibex-session-id", SESSION);
        let answer = client.post_raw("/v1/chat/completions", body.clone()).await;
        assert_eq!(answer.status.as_u16(), 200, "{:?}", answer.body);
        assert_eq!(answer.header("x-ibex-context-degradation"), "L0");
        let sent = Bytes::from(self.upstream.last().request.body.clone());
        self.exchanges.push(Exchange {
            client: items(&parsed(body)),
            sent: items(&parsed(sent.clone())),
            body: sent,
            epoch: answer.header("x-ibex-epoch").to_owned(),
            prefix: answer.header("x-ibex-prefix-sha256").to_owned(),
        });
    }

    /// A whole turn: a question, tools where there are any to be called, an answer.
    async fn turn(&mut self, number: usize, question: &str) {
        let content = if number % 4 == 3 {
            json!([{"type": "text", "text": question}, {"type": "text", "text": "Be quick."}])
        } else {
            json!(question)
        };
        self.say(json!({"role": "user", "content": content})).await;
        let rounds = [0, 0, 1, 0, 2][number % 5];
        for round in 0..rounds {
            let ids = [
                format!("call-{number}-{round}-a"),
                format!("call-{number}-{round}-b"),
            ];
            let call = |id: &String| json!({"id": id, "type": "function", "function": {"name": "switch", "arguments": "{\"on\":true}"}});
            let calls: Vec<Value> = ids.iter().take(1 + round).map(call).collect();
            self.messages
                .push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
            let answer =
                |id: &String| json!({"role": "tool", "tool_call_id": id, "content": "It is on."});
            self.messages.extend(ids.iter().take(1 + round).map(answer));
            self.ask().await;
        }
        let answer = format!("That was turn {number}.");
        self.messages
            .push(json!({"role": "assistant", "content": answer}));
    }

    async fn lose_the_cache(&self) {
        self.app.app.sessions.records.flushed().await;
        let cache = &self.app.app.sessions.in_process;
        cache.as_ref().expect("the process's own cache").clear();
    }

    async fn restart(mut self) -> Self {
        self.count().await;
        let url = self.upstream.url();
        let (edit, overrides) = (edit(self.run), overrides(&self.clock));
        self.app = self.app.restarted(&url, edit, overrides).await;
        self
    }

    async fn count(&mut self) {
        let text = self.app.client().get("/metrics").await.body;
        let text = String::from_utf8(text.to_vec()).unwrap();
        let sum = |counts: &dyn Fn(&str) -> bool| {
            let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
            let counted = lines.filter(|(name, _)| counts(name));
            counted
                .map(|(_, value)| value.parse::<u64>().unwrap())
                .sum::<u64>()
        };
        let forgets = "ibex_session_epochs_rotated_total{reason=\"forget\"}";
        let now = [
            sum(&|name| name == forgets),
            sum(&|name| name.starts_with("ibex_session_epochs_rotated_total") && name != forgets),
            sum(&|name| name == "ibex_session_prefix_broken_total"),
            sum(&|name| name == "ibex_session_events_total{event=\"client_prefix_changed\"}"),
        ];
        self.counted
            .iter_mut()
            .zip(now)
            .for_each(|(sum, now)| *sum += now);
    }

    fn mentions(&self, from: usize, text: &str) -> Vec<bool> {
        let bodies = self.exchanges.iter().skip(from);
        bodies
            .map(|e| String::from_utf8_lossy(&e.body).contains(text))
            .collect()
    }
}

fn edit(run: Run) -> impl FnOnce(&mut Config) {
    move |config| {
        patient(config);
        config.models.push(ModelConfig {
            pattern: "house".to_owned(),
            provider: None,
            upstream_model: None,
            context_window: Some(128_000),
            max_output_tokens: None,
            tokenizer: None,
            system_role: Some(run.system_role),
            recall: Some(run.recall),
        });
    }
}

fn overrides(clock: &Arc<HandClock>) -> Overrides {
    Overrides {
        clock: Some(clock.clone()),
        ..Overrides::default()
    }
}

fn tools(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}))
        .collect()
}

async fn created(client: &Client, path: &str, body: &Value) -> Answer {
    let answer = client.post(path, body).await;
    assert_eq!(answer.status.as_u16(), 201, "{:?}", answer.body);
    answer
}

/// Plays the session, and tells which request was the first after the `DELETE`.
async fn play(run: Run) -> (Session, usize) {
    let mut session = Session::start(run).await;
    session.remember("Ada is allergic to nuts.").await;
    let mut old = None;
    if run.early {
        old = Some(session.remember(OLD_KEY).await);
    }
    let mut deleted = 0;
    for number in 0..TURNS {
        let mut question = format!("Please switch lamp number {number} on.");
        if let Some((_, fact, ask)) = WRITTEN.iter().find(|(turn, ..)| *turn == number) {
            session.remember(fact).await;
            question = (*ask).to_owned();
        }
        match number {
            5 | 6 => {
                if old.is_none() {
                    old = Some(session.remember(OLD_KEY).await);
                }
                question = "Where is the spare key?".to_owned();
            }
            CORRECTED => {
                session.remember(NEW_KEY).await;
                question = "Where do I find the spare key now?".to_owned();
            }
            NEW_TOOLS => session.tools = tools(&["switch", "dim"]),
            CACHE_LOST => session.lose_the_cache().await,
            DELETED => {
                let path = format!("/v1/memories/{}", old.take().unwrap());
                let answer = session.app.client().delete(&path).await;
                assert_eq!(answer.status.as_u16(), 204, "{:?}", answer.body);
                deleted = session.exchanges.len();
                question = "Where did we put the spare key?".to_owned();
            }
            RESTARTED => session = session.restart().await,
            _ => {}
        }
        session.turn(number, &question).await;
        session.clock.forward(STEP);
    }
    session.count().await;
    (session, deleted)
}

/// The epochs of the session's only lane, as the API tells of them: number, reason, hash.
async fn epochs(session: &Session) -> Vec<(u64, String, String)> {
    session.app.app.sessions.records.flushed().await;
    let path = format!("/v1/sessions/{SESSION}");
    let answer = session.app.client().get(&path).await;
    assert_eq!(answer.status.as_u16(), 200, "{:?}", answer.body);
    let told = answer.json();
    let lanes = told["lanes"].as_array().unwrap();
    assert_eq!(lanes.len(), 1, "{told}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let epochs = lanes[0]["epochs"].as_array().unwrap();
    epochs
        .iter()
        .map(|e| {
            let number = e["epoch"].as_u64().unwrap();
            (number, text(&e["reason"]), text(&e["prefix_sha256"]))
        })
        .collect()
}

async fn check(run: Run) {
    let (session, deleted) = play(run).await;
    let exchanges = &session.exchanges;
    assert!(exchanges.len() > TURNS + 20, "tool loops are among them");

    // One prefix an epoch, and the epochs that the API explains.
    let mut prefixes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for exchange in exchanges {
        let of_epoch = prefixes.entry(&exchange.epoch).or_default();
        of_epoch.insert(&exchange.prefix);
    }
    let sent: Vec<(&str, Vec<&str>)> = prefixes
        .into_iter()
        .map(|(epoch, prefixes)| (epoch, prefixes.into_iter().collect()))
        .collect();
    let told = epochs(&session).await;
    let reasons: Vec<(u64, &str)> = told.iter().map(|(n, why, _)| (*n, why.as_str())).collect();
    assert_eq!(reasons, [(1, ""), (2, "forget")]);
    assert_eq!(
        sent,
        [("1", vec![&*told[0].2]), ("2", vec![&*told[1].2])],
        "one hash an epoch"
    );
    let at = exchanges.iter().position(|e| e.epoch == "2");
    assert_eq!(at, Some(deleted), "the epoch changes with the forget");

    // Every request goes on from the bytes of the one before.
    let mut compared = 0;
    for (number, pair) in exchanges.windows(2).enumerate() {
        let (one, next) = (&pair[0], &pair[1]);
        if one.epoch == next.epoch && next.client.starts_with(&one.client) {
            compared += 1;
            assert!(
                next.sent.starts_with(&one.sent),
                "request {} does not go on from the one before",
                number + 1
            );
        }
    }
    // All pairs but those at midnight and at the forget.
    assert_eq!(compared, exchanges.len() - 3);

    // What happened was counted as what it was.
    assert_eq!(
        session.counted,
        [1, 0, 0, 2],
        "epochs for `forget`, other epochs, broken prefixes, changes of date and tools"
    );

    // The forgotten text had gone out, and never does again; what is told instead does.
    let before = session.mentions(0, FORGOTTEN);
    assert!(before[deleted - 1] && before[..deleted].contains(&true));
    assert!(!session.mentions(deleted, FORGOTTEN).contains(&true));
    for text in WRITTEN.map(|(_, text, _)| text).iter().chain([&NEW_KEY]) {
        assert_eq!(session.mentions(0, text).last(), Some(&true), "{text}");
    }
}

#[tokio::test]
async fn fifty_turns_have_one_prefix_an_epoch_and_an_epoch_only_for_the_forget() {
    let run = Run {
        system_role: SystemRole::Multi,
        recall: RecallPlace::Separate,
        early: false,
    };
    check(run).await;
}

#[tokio::test]
async fn the_gate_holds_for_a_model_with_one_system_message() {
    let run = Run {
        system_role: SystemRole::Single,
        recall: RecallPlace::Inline,
        early: true,
    };
    check(run).await;
}

#[tokio::test]
async fn the_gate_holds_for_a_model_without_system_messages() {
    let run = Run {
        system_role: SystemRole::None,
        recall: RecallPlace::Inline,
        early: false,
    };
    check(run).await;
}
