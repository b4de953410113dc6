//! The law as a property of random conversations: where a client only goes on, what is sent only goes on, byte for byte. And whatever
//! is put in, the client's own messages stay what they are and where they are.

use std::cell::Cell;

use bytes::Bytes;
use ibex::config::{Config, ModelConfig, RecallPlace, SystemRole};
use ibex::openai::ChatRequest;
use ibex::openai::chat::{Content, Message, Role};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as Bounds, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::support::{Client, Overrides, TestApp, Upstream, items, parsed, patient};

/// Conversations, and what happens in the longest of them.
const CASES: u32 = 120;
const LONGEST: usize = 25;

const SYSTEM_ROLES: [(&str, SystemRole); 3] = [
    ("multi", SystemRole::Multi),
    ("single", SystemRole::Single),
    ("none", SystemRole::None),
];
const RECALLS: [(&str, RecallPlace); 2] = [
    ("inline", RecallPlace::Inline),
    ("separate", RecallPlace::Separate),
];

/// How a model wants it.
#[derive(Debug, Clone, Copy)]
struct Kind {
    system_role: SystemRole,
    inline: bool,
}

fn kind(model: &str) -> Kind {
    let (system_role, recall) = model.split_once('-').unwrap();
    let role = SYSTEM_ROLES.iter().find(|(name, _)| *name == system_role);
    let system_role = role.unwrap().1;
    Kind {
        system_role,
        inline: recall == "inline" || system_role == SystemRole::None,
    }
}

fn models() -> Vec<String> {
    let names = SYSTEM_ROLES.iter().map(|(name, _)| name);
    names
        .flat_map(|system| RECALLS.map(|(recall, _)| format!("{system}-{recall}")))
        .collect()
}

fn edit(config: &mut Config) {
    patient(config);
    for (system, system_role) in SYSTEM_ROLES {
        for (recall, place) in RECALLS {
            config.models.push(ModelConfig {
                pattern: format!("{system}-{recall}"),
                provider: None,
                upstream_model: None,
                context_window: Some(128_000),
                max_output_tokens: None,
                tokenizer: None,
                system_role: Some(system_role),
                recall: Some(place),
            });
        }
    }
}

/// What happens before a request.
#[derive(Debug, Clone)]
enum Step {
    /// The client goes on: with the model's answer and a new message of the user's, and something in between or not.
    Says(Saying, Between),
    /// The client goes on with so many tool calls and their answers.
    CallsTools(usize),
    /// The same request once more.
    Again,
    /// An earlier message says something else, and what follows it stays or goes.
    Edits(Index, Saying, bool),
    /// Back to an earlier message of the user's, with another one in its place.
    Branches(Index, Saying),
    /// Back to what an earlier request had, and on from there.
    GoesBack(Index, Saying),
    /// The head of the history is cut off before this message of the user's.
    Trims(Index),
    /// The client changes its own system text.
    ChangesSystem(usize),
    /// Another model.
    ChangesModel(usize),
    /// Something is learnt.
    Learns(usize),
    /// What is frozen is lost from memory, and only the store has it.
    Loses,
}

/// What stands between an answer and the message that is asked about.
#[derive(Debug, Clone, Copy)]
enum Between {
    Nothing,
    /// A system message in the middle.
    System,
    /// Another message of the user's, which is never the last one.
    User(Saying),
}

/// A message of the user's: which of a few texts, and in what form.
#[derive(Debug, Clone, Copy)]
struct Saying {
    topic: usize,
    form: usize,
}

#[derive(Debug, Clone)]
struct Case {
    model: usize,
    /// Whether the client names its session.
    named: bool,
    /// Whether the assistant speaks first.
    greeted: bool,
    system: usize,
    first: Saying,
    steps: Vec<Step>,
}

const TOPICS: [&str; 4] = ["spare key", "garage door", "tall ladder", "cat food"];
const FORMS: usize = 9;
const SYSTEMS: usize = 7;

fn saying() -> impl Strategy<Value = Saying> {
    (0..TOPICS.len(), 0..FORMS).prop_map(|(topic, form)| Saying { topic, form })
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        8 => Just(Between::Nothing),
        1 => Just(Between::System),
        1 => saying().prop_map(Between::User),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (saying(), between()).prop_map(|(s, between)| Step::Says(s, between)),
        4 => (1_usize..4).prop_map(Step::CallsTools),
        1 => Just(Step::Again),
        2 => (any::<Index>(), saying(), any::<bool>()).prop_map(|(at, s, cut)| Step::Edits(at, s, cut)),
        2 => (any::<Index>(), saying()).prop_map(|(at, s)| Step::Branches(at, s)),
        2 => (any::<Index>(), saying()).prop_map(|(at, s)| Step::GoesBack(at, s)),
        1 => any::<Index>().prop_map(Step::Trims),
        1 => (0..SYSTEMS).prop_map(Step::ChangesSystem),
        1 => (0_usize..6).prop_map(Step::ChangesModel),
        6 => (0..TOPICS.len()).prop_map(Step::Learns),
        1 => Just(Step::Loses),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let steps = prop::collection::vec(step(), 1..LONGEST);
    let fixed = (
        0_usize..6,
        any::<bool>(),
        any::<bool>(),
        0..SYSTEMS,
        saying(),
    );
    (fixed, steps).prop_map(|((model, named, greeted, system, first), steps)| Case {
        model,
        named,
        greeted,
        system,
        first,
        steps,
    })
}

/// The client's leading system text, in the forms that clients have.
fn system(variant: usize) -> Vec<String> {
    let texts: &[&str] = match variant {
        0 => &[],
        1 => &[r#"{"role":"system","content":"Help in the house."}"#],
        2 => &[r#"{ "content" : "Help \u0069n the garden.\n", "role" : "system" }"#],
        3 => &[r#"{"role":"developer","content":[{"type":"text","text":"Help."}]}"#],
        4 => &[
            r#"{"role":"system","content":"Be kind."}"#,
            r#"{"role":"system","content":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be calm."}]}"#,
        ],
        5 => &[r#"{"role":"developer","content":""}"#],
        _ => &[r#"{"role":"system","content":[]}"#],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn user(saying: Saying) -> String {
    let text = format!("Where is the {}?", TOPICS[saying.topic]);
    let part = json!({"type": "text", "text": text});
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let content = match saying.form {
        0 | 1 => json!(text),
        2 => json!([part]),
        3 => json!([part, image]),
        4 => json!([image, part]),
        5 => json!([image]),
        6 => json!([]),
        7 => return format!("{{\n  \"content\": \"{text} \\u2026\\/\" ,\"role\":\"user\"\n}}"),
        _ => {
            json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}])
        }
    };
    json!({"role": "user", "content": content}).to_string()
}

/// Messages that belong together: one, or a tool call with its answers.
type Unit = Vec<String>;

fn answer(number: usize) -> Unit {
    let text = ["Yes.", "No.", "Done."][number % 3];
    vec![json!({"role": "assistant", "content": text}).to_string()]
}

fn tool_unit(calls: usize, number: usize) -> Unit {
    let id = |i: usize| format!("call-{number}-{i}");
    let call = |i| json!({"id": id(i), "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let all: Vec<Value> = (0..calls).map(call).collect();
    let caller = json!({"role": "assistant", "content": null, "tool_calls": all});
    let answers = (0..calls)
        .rev()
        .map(|i| json!({"role": "tool", "tool_call_id": id(i), "content": "Nothing."}));
    std::iter::once(caller)
        .chain(answers)
        .map(|m| m.to_string())
        .collect()
}

fn is_user(unit: &Unit) -> bool {
    role(unit) == "user"
}

fn role(unit: &Unit) -> String {
    let message: Value = serde_json::from_str(&unit[0]).unwrap();
    message["role"].as_str().unwrap().to_owned()
}

/// A client in the middle of a conversation.
struct Talk {
    units: Vec<Unit>,
    system: usize,
    model: usize,
    /// What earlier requests had.
    earlier: Vec<Vec<Unit>>,
    /// Requests so far: makes tool calls and answers different ones.
    number: usize,
}

impl Talk {
    /// The places of the user's messages.
    fn users(&self) -> Vec<usize> {
        let places = 0..self.units.len();
        places.filter(|i| is_user(&self.units[*i])).collect()
    }

    fn answered(&mut self) {
        self.units.push(answer(self.number));
    }

    /// What is learnt before the request, if anything is.
    fn take(&mut self, step: &Step) -> Option<usize> {
        self.number += 1;
        let users = self.users();
        match step {
            Step::Says(saying, between) => {
                self.answered();
                match between {
                    Between::Nothing => {}
                    Between::System => {
                        let text = json!({"role": "system", "content": "It is late."});
                        self.units.push(vec![text.to_string()]);
                    }
                    Between::User(saying) => self.units.push(vec![user(*saying)]),
                }
                self.units.push(vec![user(*saying)]);
            }
            Step::CallsTools(calls) => self.units.push(tool_unit(*calls, self.number)),
            Step::Again | Step::Loses => {}
            Step::Edits(at, saying, cut) => {
                let at = users[at.index(users.len())];
                self.units[at] = vec![user(*saying)];
                if *cut {
                    self.units.truncate(at + 1);
                }
            }
            Step::Branches(at, saying) => {
                self.units.truncate(users[at.index(users.len())]);
                self.units.push(vec![user(*saying)]);
            }
            Step::GoesBack(at, saying) => {
                self.units
                    .clone_from(&self.earlier[at.index(self.earlier.len())]);
                self.answered();
                self.units.push(vec![user(*saying)]);
            }
            Step::Trims(at) => drop(self.units.drain(..users[at.index(users.len())])),
            Step::ChangesSystem(variant) => self.system = *variant,
            Step::ChangesModel(model) => self.model = *model,
            Step::Learns(topic) => return Some(*topic),
        }
        None
    }

    fn body(&mut self, models: &[String]) -> String {
        self.earlier.push(self.units.clone());
        let mut messages = system(self.system);
        messages.extend(self.units.iter().flatten().cloned());
        let (model, messages) = (&models[self.model], messages.join(" ,\n "));
        format!(r#"{{"model": "{model}", "messages": [ {messages} ], "temperature": 0.5}}"#)
    }
}

/// A request as it came and as it went out.
struct Exchange {
    /// Whose frozen state it had: the session's, for this model.
    lane: (String, String),
    epoch: u32,
    system: Vec<Bytes>,
    client: Vec<Bytes>,
    sent: Vec<Bytes>,
    /// How many of the client's messages are the user's.
    turns: usize,
}

impl Exchange {
    /// Whether the client does no more than going on from an earlier request.
    fn goes_on_from(&self, then: &Self) -> bool {
        self.lane == then.lane
            && self.system == then.system
            && self.client.starts_with(&then.client)
    }
}

struct Service {
    app: TestApp,
    upstream: Upstream,
    models: Vec<String>,
}

impl Service {
    async fn start() -> Self {
        let upstream = Upstream::echo_ok().await;
        let app = TestApp::with(&upstream.url(), edit, Overrides::default()).await;
        let directive = json!({"content": "Answer in one sentence.", "promote": true});
        let answer = app.client().post("/v1/directives", &directive).await;
        assert_eq!(answer.status.as_u16(), 201);
        Self {
            app,
            upstream,
            models: models(),
        }
    }

    async fn exchange(&self, client: &Client, talk: &mut Talk) -> Exchange {
        let body = talk.body(&self.models);
        let answer = client.post_raw("/v1/chat/completions", body.clone()).await;
        assert_eq!(answer.status.as_u16(), 200, "{:?}\n{body}", answer.body);
        assert_eq!(answer.header("x-ibex-context-degradation"), "L0");
        let (came, went) = (
            parsed(body),
            parsed(self.upstream.last().request.body.clone()),
        );
        let model = &self.models[talk.model];
        keeps_what_came(&came, &went, kind(model));
        let client = items(&came);
        Exchange {
            lane: (answer.header("x-ibex-session-id").to_owned(), model.clone()),
            epoch: answer.header("x-ibex-epoch").parse().unwrap(),
            system: client[..came.leading_system()].to_vec(),
            client,
            sent: items(&went),
            turns: came
                .messages()
                .iter()
                .filter(|m| m.role == Role::User)
                .count(),
        }
    }

    /// As a process that was started again: what was sent is in the store, and nowhere else.
    async fn lose(&self) {
        let sessions = &self.app.app.sessions;
        sessions.records.flushed().await;
        sessions.in_process.as_ref().unwrap().clear();
    }

    /// Plays a case; tells how many pairs of requests the law was held against, and how many of those carried memories.
    async fn play(&self, number: usize, case: &Case) -> [usize; 2] {
        let mut client = self
            .app
            .client()
            .header("x-ibex-user-id", &format!("user-{number}"));
        if case.named {
            client = client.header("x-ibex-session-id", "talk");
        }
        let mut talk = Talk {
            units: Vec::new(),
            system: case.system,
            model: case.model,
            earlier: Vec::new(),
            number: 0,
        };
        if case.greeted {
            talk.units.push(answer(0));
        }
        talk.units.push(vec![user(case.first)]);
        let mut exchanges = vec![self.exchange(&client, &mut talk).await];
        let (mut held, mut carrying, mut lost) = (0, 0, false);
        for (at, step) in case.steps.iter().enumerate() {
            if let Some(topic) = talk.take(step) {
                let content = format!("The {} is in place number {at}.", TOPICS[topic]);
                let memory = json!({ "content": content });
                let answer = client.post("/v1/memories", &memory).await;
                assert_eq!(answer.status.as_u16(), 201, "{:?}", answer.body);
            }
            // A conversation of one question leaves no record, so what was frozen for it may only be lost when the client names it.
            if matches!(step, Step::Loses) && case.named {
                self.lose().await;
                lost = true;
            }
            let now = self.exchange(&client, &mut talk).await;
            let newest = exchanges.iter().filter(|e| e.lane == now.lane);
            let newest = newest.map(|e| e.epoch).max().unwrap_or(1);
            for then in exchanges.iter().filter(|then| now.goes_on_from(then)) {
                if then.epoch == newest && now.turns <= then.turns + 1 {
                    assert_eq!(now.epoch, newest, "nothing explains another epoch");
                }
                if then.epoch == now.epoch {
                    let (then, now) = (&then.sent, &now.sent);
                    let grown = now.starts_with(then);
                    assert!(grown, "{then:#?}\nwas sent, and then\n{now:#?}");
                    held += 1;
                    carrying += usize::from(then.iter().any(recalls));
                }
            }
            // A lane that the client did not name begins with the number of the turn that it is first seen in.
            let first = if case.named { 1 } else { now.turns };
            let known = exchanges.iter().find(|e| e.lane == now.lane);
            let begun = known.map_or(u32::try_from(first).unwrap(), |e| e.epoch);
            assert!(lost || now.epoch == begun, "nothing was lost");
            exchanges.push(now);
        }
        [held, carrying]
    }
}

fn recalls(item: &Bytes) -> bool {
    String::from_utf8_lossy(item).contains("<ibex_recall")
}

/// Every message of the client's is there, in order, with all of its bytes; text stands before or behind them only where it may, and
/// messages of ours only where they part nothing.
fn keeps_what_came(came: &ChatRequest, went: &ChatRequest, kind: Kind) {
    let (theirs, sent) = (items(came), items(went));
    let leading = came.leading_system();
    let first_user = came.messages().iter().position(|m| m.role == Role::User);
    let mut next = 0;
    for item in &sent {
        let Some(message) = came.messages().get(next) else {
            panic!("behind the client's last message: {item:?}");
        };
        let system = kind.system_role == SystemRole::Single && leading > 0;
        let head = (system && next == 0)
            || (message.role == Role::User && kind.inline)
            || (kind.system_role == SystemRole::None && first_user == Some(next));
        let tail = system && next + 1 == leading;
        if *item == theirs[next] || holds(item, came, message, head, tail) {
            next += 1;
            continue;
        }
        let own: Value = serde_json::from_slice(item).unwrap();
        let text = own["content"].as_str().unwrap_or_default();
        assert!(
            text.contains("ibex_") || text.contains("This session's nonce: "),
            "neither the client's nor ours: {item:?}\ninstead of {:?}",
            theirs[next]
        );
        assert_eq!(own.as_object().unwrap().len(), 2);
        let apart = next == 0 || next == leading || message.role == Role::User;
        assert!(apart, "{item:?}\nstands before {:?}", theirs[next]);
    }
    assert_eq!(next, theirs.len(), "every message has arrived");
    let fields = |chat: &ChatRequest| {
        let others = chat
            .fields()
            .iter()
            .filter(|f| !f.key.is(chat.body(), "messages"));
        others
            .map(|f| chat.body().slice(f.value.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(fields(came), fields(went));
}

/// Whether `item` is the client's message with text before its content, behind it, or both.
fn holds(item: &[u8], came: &ChatRequest, message: &Message, head: bool, tail: bool) -> bool {
    let (start, end) = match &message.content {
        Content::Text(text) => (text.inner().start, text.inner().end),
        Content::Parts(parts) if parts.count > 0 => (parts.head, parts.tail),
        Content::Parts(_) | Content::Absent | Content::Null | Content::Other(_) => return false,
    };
    let before = came.raw(&(message.range.start..start));
    let content = came.raw(&(start..end));
    let behind = came.raw(&(end..message.range.end));
    let Some(inner) = item
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(behind))
    else {
        return false;
    };
    match (head, tail) {
        (true, true) => {
            inner.windows(content.len().max(1)).any(|w| w == content) || content.is_empty()
        }
        (true, false) => inner.ends_with(content),
        (false, true) => inner.starts_with(content),
        (false, false) => false,
    }
}

#[test]
fn what_was_sent_is_sent_again_wherever_the_client_goes_on() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let service = runtime.block_on(Service::start());
    let mut runner = TestRunner::new(Bounds {
        cases: CASES,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Bounds::default()
    });
    let (number, sums) = (Cell::new(0), Cell::new([0; 2]));
    let outcome = runner.run(&case(), |case| {
        number.set(number.get() + 1);
        let [held, carrying] = runtime.block_on(service.play(number.get(), &case));
        let sum = sums.get();
        sums.set([sum[0] + held, sum[1] + carrying]);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let [held, carrying] = sums.get();
    assert!(
        held > 1_000 && carrying > 100,
        "{held} pairs, {carrying} with memories: too few to mean anything"
    );
}
