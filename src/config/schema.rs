//! The tree of known keys, the question "would this value do there?", and near matches for names that are not in it.

use serde::Deserialize;
use toml::{Table, Value};

use super::Config;
use super::every_key::{ANY_NAME, every_key};
use super::tree::{KeyPath, Step};

/// How alike two names must be (1 = equal) before one is offered for the other.
const ALIKE: f64 = 0.6;

/// The known keys.
#[derive(Debug)]
pub(super) struct Schema {
    root: Table,
}

impl Schema {
    pub(super) fn new() -> Self {
        // Every configuration serialises (a test loads the result); an empty tree would refuse every key.
        Self {
            root: Table::try_from(every_key()).unwrap_or_default(),
        }
    }

    pub(super) fn root(&self) -> &Table {
        &self.root
    }

    /// The section or value that a variable's path names, with the path in the schema's own terms.
    pub(super) fn find(&self, path: &[String]) -> Option<&Value> {
        let (last, sections) = path.split_last()?;
        let table = sections
            .iter()
            .try_fold(&self.root, |table, key| child(table, key)?.as_table())?;
        child(table, last)
    }

    /// Why `value` cannot stand at `path`, in the deserialiser's words.
    pub(super) fn refuses(&self, path: &KeyPath, value: Value) -> Option<String> {
        self.with(path, Some(value)).err()
    }

    /// Whether the section at `path` cannot do without `key`.
    pub(super) fn requires(&self, path: &KeyPath, key: &str) -> bool {
        self.with(&path.key(key), None).is_err()
    }

    /// Tries the configuration that has every key, with one of them changed or removed.
    fn with(&self, path: &KeyPath, value: Option<Value>) -> Result<(), String> {
        let mut root = Value::Table(self.root.clone());
        if let Some((Step::Key(last), parents)) = path.0.split_last()
            && let Some(Value::Table(table)) = parents
                .iter()
                .try_fold(&mut root, |node, step| step_into(node, step))
        {
            match value {
                Some(value) => table.insert(last.clone(), value),
                None => table.remove(last),
            };
        }
        Config::deserialize(root)
            .map(|_| ())
            .map_err(|error| error.message().to_owned())
    }

    /// Every setting that is a value, by its path. Lists of sections count as one setting.
    pub(super) fn leaves(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        collect(&self.root, &mut Vec::new(), &mut found);
        found
    }

    /// The known path nearest to one whose last key is not known in an otherwise known section.
    pub(super) fn nearest(&self, section: &Table, path: &KeyPath, unknown: &str) -> Option<String> {
        let sibling = best(
            section
                .keys()
                .filter(|k| *k != ANY_NAME)
                .map(|k| (likeness(unknown, k), path.key(k).to_string())),
        );
        sibling.or_else(|| {
            let elsewhere = self.leaves();
            best(elsewhere.iter().filter_map(|leaf| {
                Some((
                    strsim::normalized_damerau_levenshtein(unknown, leaf.last()?),
                    leaf.join("."),
                ))
            }))
        })
    }

    /// The variable nearest to an unknown one; `path` is its name, lower-cased and split at `__`.
    pub(super) fn nearest_variable(&self, path: &[String]) -> Option<String> {
        let mut fixed: Vec<String> = Vec::new();
        let mut table = &self.root;
        for key in path {
            let known = child(table, key).is_some();
            let key = if known {
                key.clone()
            } else {
                best(table.keys().map(|k| (likeness(key, k), k.clone())))?
            };
            let next = child(table, &key).and_then(Value::as_table);
            fixed.push(key);
            match next {
                Some(next) => table = next,
                None => return Some(variable(&fixed)),
            }
        }
        Some(format!("{}__…", variable(&fixed)))
    }

    /// The variable whose name reads like `name` when every `_` counts the same: `server_listen` is `IBEX_SERVER__LISTEN`.
    pub(super) fn nearest_flat(&self, name: &str) -> Option<String> {
        best(self.leaves().iter().map(|leaf| {
            (
                strsim::normalized_damerau_levenshtein(name, &leaf.join("_")),
                variable(leaf),
            )
        }))
    }
}

/// The name of the variable that sets the value at `path`.
pub(super) fn variable(path: &[String]) -> String {
    format!("IBEX_{}", path.join("__").to_uppercase())
}

/// The value with this key, or the one that stands for every name.
pub(super) fn child<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    table.get(key).or_else(|| table.get(ANY_NAME))
}

/// The element that stands for every element of a list of sections.
pub(super) fn element(value: &Value) -> Option<&Table> {
    value.as_array()?.first()?.as_table()
}

fn step_into<'a>(node: &'a mut Value, step: &Step) -> Option<&'a mut Value> {
    match (node, step) {
        (Value::Table(table), Step::Key(key)) => table.get_mut(key),
        (Value::Array(items), Step::Index(_)) => items.first_mut(),
        _ => None,
    }
}

fn collect(table: &Table, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            Value::Table(inner) => collect(inner, path, found),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => found.push(path.clone()),
        }
        path.pop();
    }
}

/// How alike two keys are. A key's tail counts too, a little less: `rpm` is meant by somebody who looks for `default_rpm`.
fn likeness(wrong: &str, known: &str) -> f64 {
    let whole = strsim::normalized_damerau_levenshtein(wrong, known);
    let tails = known
        .match_indices('_')
        .filter_map(|(at, _)| known.get(at + 1..));
    tails
        .map(|tail| 0.95 * strsim::normalized_damerau_levenshtein(wrong, tail))
        .fold(whole, f64::max)
}

fn best(candidates: impl Iterator<Item = (f64, String)>) -> Option<String> {
    candidates
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
