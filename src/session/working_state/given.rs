//! The state as its writer gives it: objects whose unknown members are refused, identifiers optional.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

use super::{Entry, Question, Task, TaskStatus, WorkingState};

/// A JSON object: serde's structs alone also take an array of their fields, and an empty one would be the empty state.
pub(super) struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A state as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenState {
    #[serde(default)]
    constraints: Vec<Entry>,
    #[serde(default)]
    tasks: Vec<Task>,
    #[serde(default)]
    facts: Vec<Entry>,
    #[serde(default)]
    open_questions: Vec<Question>,
}

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenEntry {
    id: Option<String>,
    text: String,
}

/// A task as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenTask {
    id: Option<String>,
    text: String,
    #[serde(default)]
    status: TaskStatus,
}

/// A question as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenQuestion {
    id: Option<String>,
    text: String,
    #[serde(default)]
    answered: bool,
}

/// Identifier and trimmed text. Without an identifier of its own an item has one of its text, so that the same text is the same item.
fn identified(id: Option<String>, text: &str) -> (String, String) {
    let text = text.trim();
    let id = id.unwrap_or_else(|| {
        let digest = Sha256::digest(text);
        digest.iter().take(4).map(|b| format!("{b:02x}")).collect()
    });
    (id, text.to_owned())
}

impl From<Object<GivenState>> for WorkingState {
    fn from(Object(given): Object<GivenState>) -> Self {
        Self {
            constraints: given.constraints,
            tasks: given.tasks,
            facts: given.facts,
            open_questions: given.open_questions,
        }
    }
}

impl From<Object<GivenEntry>> for Entry {
    fn from(Object(given): Object<GivenEntry>) -> Self {
        let (id, text) = identified(given.id, &given.text);
        Self { id, text }
    }
}

impl From<Object<GivenTask>> for Task {
    fn from(Object(given): Object<GivenTask>) -> Self {
        let (id, text) = identified(given.id, &given.text);
        Self {
            id,
            text,
            status: given.status,
        }
    }
}

impl From<Object<GivenQuestion>> for Question {
    fn from(Object(given): Object<GivenQuestion>) -> Self {
        let (id, text) = identified(given.id, &given.text);
        Self {
            id,
            text,
            answered: given.answered,
        }
    }
}
