//! Working state: what an agent holds in mind during a session, typed and bounded. Written by a call, never parsed from prose.
//!
//! The bounds, and that a constraint is never evicted, are those of ADR-0020: point 6 gives the tokens, point 14 the items of each list.

mod given;
mod bounds;
mod delta;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use bounds::Evicted;
pub use delta::{delta, render};
use given::{GivenEntry, GivenQuestion, GivenState, GivenTask, Object};

/// Most constraints (ADR-0020, point 14).
pub const MAX_CONSTRAINTS: usize = 20;
/// Most tasks (ADR-0020, point 14).
pub const MAX_TASKS: usize = 30;
/// Most facts (ADR-0020, point 14).
pub const MAX_FACTS: usize = 40;
/// Most open questions (ADR-0020, point 14).
pub const MAX_OPEN_QUESTIONS: usize = 20;
/// Most `o200k_base` tokens of the whole state (ADR-0020, points 6 and 14): its lines as they are sent, escaped, each with its line
/// end. The envelope around them differs by session and is not counted.
pub const MAX_TOKENS: u32 = 1_000;
/// Longest text of an item in characters. The ADR gives none; this lets no single item take the whole.
pub const MAX_TEXT_CHARS: usize = 500;
/// Longest identifier of an item in characters, as of a session.
pub const MAX_ID_CHARS: usize = 64;

/// What an agent holds in mind. Each list is in the order of its writer, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Object<GivenState>")]
pub struct WorkingState {
    /// What has to hold until somebody takes it back.
    pub constraints: Vec<Entry>,
    /// What is to be done.
    pub tasks: Vec<Task>,
    /// What was found out.
    pub facts: Vec<Entry>,
    /// What is still unclear.
    pub open_questions: Vec<Question>,
}

/// A constraint or a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Object<GivenEntry>")]
pub struct Entry {
    /// Tells it apart in its list: the client's, or derived from the text.
    pub id: String,
    /// What it says.
    pub text: String,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Object<GivenTask>")]
pub struct Task {
    /// Tells it apart in its list: the client's, or derived from the text.
    pub id: String,
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub status: TaskStatus,
}

/// Something unclear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Object<GivenQuestion>")]
pub struct Question {
    /// Tells it apart in its list: the client's, or derived from the text.
    pub id: String,
    /// What is asked.
    pub text: String,
    /// Whether that is known by now.
    pub answered: bool,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    #[default]
    Open,
    /// Under way.
    InProgress,
    /// Finished.
    Done,
    /// Given up.
    Cancelled,
}

impl TaskStatus {
    /// The text in JSON and in a delta.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        match self {
            Self::Open | Self::InProgress => false,
            Self::Done | Self::Cancelled => true,
        }
    }
}

/// One of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// Constraints.
    Constraints,
    /// Tasks.
    Tasks,
    /// Facts.
    Facts,
    /// Open questions.
    OpenQuestions,
}

impl List {
    /// Every list, in the order of a delta.
    pub const ALL: [Self; 4] = [
        Self::Constraints,
        Self::Tasks,
        Self::Facts,
        Self::OpenQuestions,
    ];

    /// The member of the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Constraints => "constraints",
            Self::Tasks => "tasks",
            Self::Facts => "facts",
            Self::OpenQuestions => "open_questions",
        }
    }

    /// One of its items in a delta.
    const fn noun(self) -> &'static str {
        match self {
            Self::Constraints => "constraint",
            Self::Tasks => "task",
            Self::Facts => "fact",
            Self::OpenQuestions => "question",
        }
    }

    /// How many items it may hold.
    #[must_use]
    pub const fn most(self) -> usize {
        match self {
            Self::Constraints => MAX_CONSTRAINTS,
            Self::Tasks => MAX_TASKS,
            Self::Facts => MAX_FACTS,
            Self::OpenQuestions => MAX_OPEN_QUESTIONS,
        }
    }
}

/// One item, whatever its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen<'a> {
    id: &'a str,
    text: &'a str,
    /// How far it is, where that can be told.
    label: Option<&'static str>,
    /// Whether it is over: a finished task, an answered question.
    is_over: bool,
}

impl Entry {
    fn seen(&self) -> Seen<'_> {
        Seen {
            id: &self.id,
            text: &self.text,
            label: None,
            is_over: false,
        }
    }
}

impl Task {
    fn seen(&self) -> Seen<'_> {
        Seen {
            id: &self.id,
            text: &self.text,
            label: Some(self.status.as_str()),
            is_over: self.status.is_finished(),
        }
    }
}

impl Question {
    fn seen(&self) -> Seen<'_> {
        Seen {
            id: &self.id,
            text: &self.text,
            label: Some(if self.answered { "answered" } else { "open" }),
            is_over: self.answered,
        }
    }
}

impl WorkingState {
    /// What is left of it once the turn it was written in is over, field by field: constraints and facts carry always; a task carries
    /// until it is done or cancelled, a question until it is answered.
    #[must_use]
    pub fn carried(&self) -> Self {
        let mut state = self.clone();
        state.tasks.retain(|task| !task.status.is_finished());
        state.open_questions.retain(|question| !question.answered);
        state
    }

    fn items(&self, list: List) -> Vec<Seen<'_>> {
        match list {
            List::Constraints => self.constraints.iter().map(Entry::seen).collect(),
            List::Tasks => self.tasks.iter().map(Task::seen).collect(),
            List::Facts => self.facts.iter().map(Entry::seen).collect(),
            List::OpenQuestions => self.open_questions.iter().map(Question::seen).collect(),
        }
    }
}
