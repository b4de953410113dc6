//! Memories as a client brings them, through the whole write path into a real store.
//!
//! The first byte chooses the form, the second where the body is cut; the rest is the body, or one memory a line.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use ibex::config::Uncertain;
use ibex::memory::{own_text, pii};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{Input, pieces};
use super::service::{Asked, Kept, Service, Tenant, error_object, refused};
use super::wire::Answer;

/// Inputs after which the service is started anew, so that its store stays small.
const INPUTS: u32 = 10_000;
/// Inputs between two looks at what the other tenant has.
const LOOKS: u32 = 64;
/// What the other tenant has. Nobody else is told of it.
const CANARY: &str = "zq7-only-the-other-tenant-knows";
/// Most lines of one input.
const LINES: usize = 24;

struct Bench {
    service: Service,
    tenant: Tenant,
    other: Tenant,
}

thread_local! {
    static BENCH: Kept<Bench> = const { Kept::new() };
}

impl From<Bench> for Service {
    fn from(bench: Bench) -> Self {
        bench.service
    }
}

/// A body of many memories.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many<'a> {
    #[serde(borrow)]
    memories: Vec<&'a RawValue>,
}

impl Bench {
    fn start() -> Self {
        let mut service = Service::start(|config| {
            config.memory.pii.uncertain = Uncertain::Quarantine;
            config.memory.max_batch = 32;
        });
        let (tenant, other) = (service.tenant(), service.tenant());
        let body = format!(r#"{{"content":"{CANARY} likes tea"}}"#);
        let (answer, _) = service.ask(Asked::post("/v1/memories", &other, body.as_bytes()));
        assert_eq!(answer.status, StatusCode::CREATED);
        Self {
            service,
            tenant,
            other,
        }
    }

    /// A list of memories, as `who` sees them.
    fn list(&mut self, who: &Tenant, user: Option<&str>) -> Vec<Value> {
        let headers = user.map(|user| ("x-ibex-user-id", user.to_owned()));
        let (answer, _) = self.service.ask(Asked {
            method: Method::GET,
            path: "/v1/memories?limit=100",
            who,
            headers: headers.into_iter().collect(),
            body: Vec::new(),
        });
        assert_eq!(answer.status, StatusCode::OK);
        let Value::Array(memories) = json(&answer)["memories"].take() else {
            panic!("no list");
        };
        memories
    }
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("an answer in JSON")
}

/// Runs the harness.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let (chosen, seed) = (input.byte(), input.byte());
    BENCH.with(|kept| {
        kept.run(INPUTS, Bench::start, |bench, left| {
            one(bench, left, (chosen, seed), input.rest());
        });
    });
}

fn one(bench: &mut Bench, left: u32, (chosen, seed): (u8, u8), text: &[u8]) {
    let joined = (chosen & 1 != 0).then(|| lines(text));
    let body = joined.as_deref().unwrap_or(text);
    let alone = chosen & 3 == 2;
    let path = if alone {
        "/v1/memories"
    } else {
        "/v1/memories/batch"
    };
    // A user of its own: what one input leaves behind is no duplicate for the next.
    let user = format!("u{left}");
    let mut headers = vec![("x-ibex-user-id", user.clone())];
    if chosen & 4 != 0 {
        headers.push(("idempotency-key", user.clone()));
    }
    let tenant = bench.tenant.clone();
    let asked = Asked {
        method: Method::POST,
        path,
        who: &tenant,
        headers,
        body: if seed == 0 {
            vec![body]
        } else {
            pieces(body, seed)
        },
    };
    let (answer, received) = bench.service.ask(asked.clone());
    assert!(received.is_empty(), "a write asks no provider");
    let stored = if alone {
        told_of_one(&answer)
    } else {
        told_of_each(&answer, body)
    };
    if chosen & 4 != 0 && !alone && answer.status == StatusCode::MULTI_STATUS {
        let (again, _) = bench.service.ask(asked);
        assert_eq!(told_of_each(&again, body), stored, "a repeated key");
    }
    kept(bench, &tenant, (&user, &stored));
    let theirs = String::from_utf8_lossy(&answer.body).contains(CANARY);
    assert!(!theirs || String::from_utf8_lossy(text).contains(CANARY));
    if left.is_multiple_of(LOOKS) {
        let other = bench.other.clone();
        let [only] = &bench.list(&other, None)[..] else {
            panic!("the other tenant has something else than before");
        };
        assert_eq!(only["content"], format!("{CANARY} likes tea"));
    }
}

/// Lines that are JSON, as one body.
fn lines(text: &[u8]) -> Vec<u8> {
    let whole = |line: &&[u8]| serde_json::from_slice::<&RawValue>(line).is_ok();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(whole).collect();
    let few = lines.get(..LINES).unwrap_or(&lines);
    [b"{\"memories\":[", &few.join(&b',')[..], b"]}"].concat()
}

/// The identifier of the one memory, if it was stored.
fn told_of_one(answer: &Answer) -> BTreeSet<String> {
    if answer.status != StatusCode::CREATED && answer.status != StatusCode::ACCEPTED {
        refused(answer);
        return BTreeSet::new();
    }
    let memory = json(answer);
    BTreeSet::from([memory["id"].as_str().expect("an identifier").to_owned()])
}

/// The identifiers of what was stored, after a look at every result.
fn told_of_each(answer: &Answer, body: &[u8]) -> BTreeSet<String> {
    if answer.status != StatusCode::MULTI_STATUS {
        refused(answer);
        return BTreeSet::new();
    }
    let asked: Many<'_> = serde_json::from_slice(body).expect("an accepted batch");
    let told = json(answer);
    let results = told["results"].as_array().expect("results");
    assert_eq!(results.len(), asked.memories.len(), "a result for each");
    let mut stored = BTreeSet::new();
    for result in results {
        let status = result["status"].as_u64().expect("a status");
        let id = result["id"].as_str();
        match status {
            201 | 202 => stored.insert(id.expect("an identifier").to_owned()),
            _ => {
                assert_eq!(id, None, "refused, and has an identifier");
                error_object(&result["error"], u16::try_from(status).expect("a status"));
                false
            }
        };
    }
    stored
}

/// What the user then has is what was told, and may be stored.
fn kept(bench: &mut Bench, tenant: &Tenant, (user, stored): (&str, &BTreeSet<String>)) {
    for memory in bench.list(tenant, Some(user)) {
        let id = memory["id"].as_str().expect("an identifier");
        assert!(stored.contains(id), "nobody was told of {id}");
        assert_eq!(memory["user_id"], user);
        let content = memory["content"].as_str().expect("a text");
        assert!(!content.trim().is_empty());
        assert_eq!(own_text(content), None, "a memory holds an envelope");
        let again = pii::redact(content, pii::DEFAULT_THRESHOLD, pii::KindSet::ALL);
        assert!(again.redacted.is_empty(), "left in: {:?}", again.redacted);
    }
}
