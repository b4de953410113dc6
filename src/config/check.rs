//! Holds a tree of written settings to the known keys: every unknown name, wrong type and missing key becomes a fault.
//!
//! Each value is tried alone, in a configuration that is otherwise right, so one wrong value cannot hide another. What is wrong is
//! replaced by something valid in the result, so that the rest can still be validated.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::every_key::ANY_NAME;
use super::fault::{Fault, Origin};
use super::schema::{Schema, child, element};
use super::tree::{KeyPath, Kind, Node};

/// What a check found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The settings, valid as far as their types go.
    pub(super) settings: Table,
    /// What is wrong.
    pub(super) faults: Vec<Fault>,
    /// Where each setting and section was written.
    pub(super) origins: BTreeMap<String, Origin>,
}

pub(super) fn check(schema: &Schema, written: &BTreeMap<String, Node>) -> Checked {
    let mut checker = Checker {
        schema,
        faults: Vec::new(),
        origins: BTreeMap::new(),
    };
    let root = Place {
        known: schema.root(),
        path: KeyPath::default(),
        known_path: KeyPath::default(),
    };
    let settings = checker.section(&root, written, None);
    Checked {
        settings,
        faults: checker.faults,
        origins: checker.origins,
    }
}

struct Checker<'a> {
    schema: &'a Schema,
    faults: Vec<Fault>,
    origins: BTreeMap<String, Origin>,
}

/// A section being checked: its keys, its path as written and its path in the tree of known keys.
struct Place<'a> {
    known: &'a Table,
    path: KeyPath,
    known_path: KeyPath,
}

impl<'a> Place<'a> {
    fn inner(&self, known: &'a Table, key: &str, index: Option<usize>) -> Self {
        let known_key = if self.known.contains_key(key) {
            key
        } else {
            ANY_NAME
        };
        let (mut path, mut known_path) = (self.path.key(key), self.known_path.key(known_key));
        if let Some(index) = index {
            (path, known_path) = (path.index(index), known_path.index(0));
        }
        Self {
            known,
            path,
            known_path,
        }
    }
}

impl Checker<'_> {
    fn section(
        &mut self,
        place: &Place<'_>,
        written: &BTreeMap<String, Node>,
        origin: Option<&Origin>,
    ) -> Table {
        let mut valid = Table::new();
        let mut meant = Vec::new();
        for (key, node) in written {
            self.origins
                .insert(place.path.key(key).to_string(), node.origin.clone());
            match child(place.known, key) {
                Some(known) => {
                    if let Some(value) = self.setting(place, key, known, node) {
                        valid.insert(key.clone(), value);
                    }
                }
                None => {
                    let nearest = self.schema.nearest(place.known, &place.path, key);
                    meant.extend(nearest.clone());
                    self.faults.push(
                        Fault::new(place.path.key(key).to_string(), "there is no such key")
                            .at(node.origin.clone())
                            .nearest(nearest),
                    );
                }
            }
        }
        for (key, known) in place.known {
            if valid.contains_key(key)
                || key == ANY_NAME
                || !self.schema.requires(&place.known_path, key)
            {
                continue;
            }
            let path = place.path.key(key).to_string();
            // A misspelt or wrong key has its fault already.
            if !written.contains_key(key) && !meant.contains(&path) {
                self.faults.push(Fault {
                    origin: origin.cloned(),
                    ..Fault::new(path, "is missing and has no default")
                });
            }
            valid.insert(key.clone(), known.clone());
        }
        valid
    }

    /// The valid form of one known setting; `None` when the default has to do.
    fn setting(
        &mut self,
        place: &Place<'_>,
        key: &str,
        known: &Value,
        node: &Node,
    ) -> Option<Value> {
        let fault = |reason: String| {
            Some(Fault::new(place.path.key(key).to_string(), reason).at(node.origin.clone()))
        };
        let fault = match (known, &node.kind) {
            (_, Kind::Broken) => None,
            (Value::Table(inner), Kind::Table(written)) => {
                return Some(Value::Table(self.section(
                    &place.inner(inner, key, None),
                    written,
                    Some(&node.origin),
                )));
            }
            (Value::Table(inner), _) => fault(format!(
                "is a section, not a value: its keys are {}",
                names(inner)
            )),
            (Value::Array(_), Kind::Tables(items)) if let Some(inner) = element(known) => {
                return Some(Value::Array(self.elements(place, key, inner, items)));
            }
            (Value::Array(_), Kind::Leaf(Value::Array(items))) if items.is_empty() => {
                return Some(Value::Array(Vec::new()));
            }
            (Value::Array(_), _) if element(known).is_some() => fault(format!(
                "is a list of sections: write [[{}]]",
                place.path.key(key)
            )),
            (_, Kind::Table(_) | Kind::Tables(_)) => {
                fault("takes a value, not a section".to_owned())
            }
            (_, Kind::Leaf(value)) => {
                let known_key = if place.known.contains_key(key) {
                    key
                } else {
                    ANY_NAME
                };
                match self
                    .schema
                    .refuses(&place.known_path.key(known_key), value.clone())
                {
                    None => return Some(value.clone()),
                    Some(error) => fault(reason(known, value, &error)),
                }
            }
        };
        self.faults.extend(fault);
        None
    }

    fn elements(
        &mut self,
        place: &Place<'_>,
        key: &str,
        inner: &Table,
        items: &[Node],
    ) -> Vec<Value> {
        let mut valid = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if let Kind::Table(written) = &item.kind {
                let place = place.inner(inner, key, Some(index));
                self.origins
                    .insert(place.path.to_string(), item.origin.clone());
                valid.push(Value::Table(self.section(
                    &place,
                    written,
                    Some(&item.origin),
                )));
            }
        }
        valid
    }
}

fn names(section: &Table) -> String {
    let names: Vec<&str> = section
        .keys()
        .map(|key| {
            if key == ANY_NAME {
                "names of your choice"
            } else {
                key.as_str()
            }
        })
        .collect();
    names.join(", ")
}

/// Why a value cannot stand where `known` could, in plain words and without the value.
fn reason(known: &Value, found: &Value, error: &str) -> String {
    match (known, found) {
        (Value::Integer(_), Value::Integer(n)) if *n < 0 => "must not be negative".to_owned(),
        (Value::Integer(_), Value::Integer(_)) => "is too large".to_owned(),
        // "unknown variant `x`, expected one of `a`, `b`": the list is what helps.
        (Value::String(_), Value::String(_)) => match error.split_once(", expected ") {
            Some((_, expected)) if error.starts_with("unknown variant") => {
                format!("must be {expected}")
            }
            _ => error.to_owned(),
        },
        _ if known.same_type(found) => error.to_owned(),
        (_, Value::String(text))
            if text.parse::<f64>().is_ok() || text == "true" || text == "false" =>
        {
            format!(
                "must be {}, not a text: leave out the quotes",
                type_name(known)
            )
        }
        _ => format!("must be {}, not {}", type_name(known), type_name(found)),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}
