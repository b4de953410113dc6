//! The bounds: what of a state is refused, and what is evicted so that the rest fits.

use std::collections::HashSet;

use serde::Serialize;

use crate::error::FieldError;
use crate::memory::escape;

use super::WorkingState;
use super::delta::line;
use super::{Entry, List, MAX_ID_CHARS, MAX_TEXT_CHARS, MAX_TOKENS, Question, Seen, Task};

/// Most faults that are listed; an answer must not grow with the request.
const MAX_LISTED: usize = 20;

/// Where room is made, in this order: what can be found out again, then what is over anyway.
const YIELD_ORDER: [List; 3] = [List::Facts, List::OpenQuestions, List::Tasks];

/// An item that had to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evicted {
    /// The list it stood in.
    pub list: List,
    /// Its identifier.
    pub id: String,
}

/// Whether it may be evicted. A constraint is exactly what its user would notice being dropped, and so is what is still open.
fn yields(list: List, item: Seen<'_>) -> bool {
    match list {
        List::Constraints => false,
        List::Facts => true,
        List::Tasks | List::OpenQuestions => item.is_over,
    }
}

/// What an item costs: its line, escaped, with its end. No vocabulary joins what stands on both sides of a line's end when a sign
/// follows it, so that the sum over the lines is the count of the text.
fn cost(list: List, item: Seen<'_>, count: &impl Fn(&str) -> u32) -> u32 {
    let mut text = escape(&line('+', list, item)).into_owned();
    text.push('\n');
    count(&text)
}

impl WorkingState {
    /// Brings the state inside its bounds. The oldest facts are evicted first, then answered questions, then finished tasks, in the
    /// order of their lists. `count` gives the `o200k_base` tokens of a text.
    ///
    /// # Errors
    /// Every fault at once: texts and identifiers that are not allowed, and bounds that what may not be evicted exceeds by itself.
    pub fn bounded(
        mut self,
        count: impl Fn(&str) -> u32,
    ) -> Result<(Self, Vec<Evicted>), Vec<FieldError>> {
        let staying = self.staying_tokens(&count);
        let mut faults: Vec<FieldError> = List::ALL
            .iter()
            .filter_map(|list| number_fault(*list, &self.items(*list)))
            .chain(tokens_fault(&staying))
            .collect();
        for list in List::ALL {
            check_items(list, &self.items(list), &mut faults);
        }
        if !faults.is_empty() {
            faults.truncate(MAX_LISTED);
            return Err(faults);
        }
        let mut evicted = Vec::new();
        for list in YIELD_ORDER {
            let surplus = self.items(list).len().saturating_sub(list.most());
            self.evict(list, surplus, &mut evicted);
        }
        for (list, number) in self.over_tokens(total(&staying), &count) {
            self.evict(list, number, &mut evicted);
        }
        Ok((self, evicted))
    }

    /// The tokens of what may not be evicted. Items with a fault of their own and those over a list's number are left out: a client
    /// must not choose how long the counting takes.
    fn staying_tokens(&self, count: &impl Fn(&str) -> u32) -> [(List, u32); List::ALL.len()] {
        List::ALL.map(|list| {
            let items = self.items(list).into_iter();
            let costs = items
                .filter(|item| !yields(list, *item) && text_fault(item.text).is_none())
                .take(list.most())
                .map(|item| cost(list, item, count));
            (list, costs.fold(0, u32::saturating_add))
        })
    }

    /// How many items of each list have to leave, so that with `staying` tokens of the others no more than [`MAX_TOKENS`] are left.
    fn over_tokens(
        &self,
        staying: u32,
        count: &impl Fn(&str) -> u32,
    ) -> [(List, usize); YIELD_ORDER.len()] {
        let yielding = YIELD_ORDER.map(|list| {
            let items = self.items(list).into_iter();
            let costs = items
                .filter(|item| yields(list, *item))
                .map(|item| cost(list, item, count));
            (list, costs.collect::<Vec<u32>>())
        });
        let costs = yielding.iter().flat_map(|(_, costs)| costs);
        let mut tokens = costs.fold(staying, |sum, cost| sum.saturating_add(*cost));
        yielding.map(|(list, costs)| {
            let leaving = costs.iter().take_while(|cost| {
                let over = tokens > MAX_TOKENS;
                if over {
                    tokens = tokens.saturating_sub(**cost);
                }
                over
            });
            (list, leaving.count())
        })
    }

    /// Takes the first `number` items that may leave out of a list.
    fn evict(&mut self, list: List, number: usize, evicted: &mut Vec<Evicted>) {
        let mut left = number;
        let mut stays = |item: Seen<'_>| {
            let leaves = left > 0 && yields(list, item);
            if leaves {
                left -= 1;
                let id = item.id.to_owned();
                evicted.push(Evicted { list, id });
            }
            !leaves
        };
        match list {
            List::Constraints => {}
            List::Tasks => self.tasks.retain(|item| stays(Task::seen(item))),
            List::Facts => self.facts.retain(|item| stays(Entry::seen(item))),
            List::OpenQuestions => self
                .open_questions
                .retain(|item| stays(Question::seen(item))),
        }
    }
}

fn fault(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> FieldError {
    FieldError {
        field: field.into(),
        code,
        message: message.into(),
    }
}

/// Checks the texts and identifiers of a list.
fn check_items(list: List, items: &[Seen<'_>], faults: &mut Vec<FieldError>) {
    let mut met = HashSet::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        if faults.len() >= MAX_LISTED {
            return;
        }
        let field = |name: &str| format!("{}[{i}].{name}", list.as_str());
        if let Some((code, message)) = text_fault(item.text) {
            faults.push(fault(field("text"), code, message));
        }
        let visible = item.id.bytes().all(|b| (0x21..=0x7e).contains(&b));
        if item.id.is_empty() || item.id.len() > MAX_ID_CHARS || !visible {
            let message = format!("must be 1 to {MAX_ID_CHARS} visible ASCII characters");
            faults.push(fault(field("id"), "INVALID_FORMAT", message));
        } else if !met.insert(item.id) {
            let message = "must not repeat in its list (without one, the text must not)";
            faults.push(fault(field("id"), "DUPLICATE", message));
        }
    }
}

fn text_fault(text: &str) -> Option<(&'static str, String)> {
    if text.is_empty() {
        Some(("REQUIRED", "must not be empty".to_owned()))
    } else if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        Some((
            "TOO_LONG",
            format!("must be at most {MAX_TEXT_CHARS} characters"),
        ))
    } else if text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    {
        let message = "must not hold control characters other than line breaks and tabs";
        Some(("INVALID_FORMAT", message.to_owned()))
    } else {
        None
    }
}

/// Refuses a list with more items than it may hold of which none may leave.
fn number_fault(list: List, items: &[Seen<'_>]) -> Option<FieldError> {
    let staying = items.iter().filter(|item| !yields(list, **item)).count();
    let open = match list {
        List::Constraints | List::Facts => "",
        List::Tasks | List::OpenQuestions => " that are still open",
    };
    let most = list.most();
    (staying > most).then(|| {
        let message = format!("must hold at most {most} items{open}, not {staying}");
        fault(list.as_str(), "TOO_MANY", message)
    })
}

fn total(sums: &[(List, u32)]) -> u32 {
    let tokens = sums.iter().map(|(_, tokens)| *tokens);
    tokens.fold(0, u32::saturating_add)
}

/// Refuses more tokens than there may be of what may not leave; names the list with most of them.
fn tokens_fault(staying: &[(List, u32)]) -> Option<FieldError> {
    let tokens = total(staying);
    let (list, _) = staying.iter().max_by_key(|(_, tokens)| *tokens)?;
    (tokens > MAX_TOKENS).then(|| {
        let message = format!(
            "constraints and what is still open have {tokens} tokens together; {MAX_TOKENS} are allowed"
        );
        fault(list.as_str(), "TOO_LONG", message)
    })
}
