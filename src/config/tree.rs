//! Settings as they were written, each with its origin: the TOML file's tree, into which variables are then inserted.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use toml::Value;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::fault::{Fault, Origin};

/// A written setting or group of settings.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A section.
    Table(BTreeMap<String, Node>),
    /// A list of sections (`[[models]]`).
    Tables(Vec<Node>),
    /// Anything else.
    Leaf(Value),
    /// A value that is no TOML; its fault is already known.
    Broken,
}

/// One step of a setting's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The path of a setting; displays as `models[1].pattern`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

impl KeyPath {
    pub(super) fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.0.push(Step::Key(key.to_owned()));
        path
    }

    pub(super) fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Step::Index(index));
        path
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if at == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Turns parsed TOML into nodes and collects what the parser could not read.
struct Reader<'a> {
    text: &'a str,
    /// Gives every node its origin: the line, or the one variable the text came from.
    origin: &'a dyn Fn(usize) -> Origin,
    /// Lines with a syntax error, with what is wrong there.
    broken: BTreeMap<usize, String>,
    faults: Vec<Fault>,
}

/// Reads a whole file. The parser recovers from errors, so every one of them is reported.
pub(super) fn read_file(text: &str, file: &Path) -> (BTreeMap<String, Node>, Vec<Fault>) {
    read(text, &|line| Origin::Line(file.to_owned(), line))
}

/// Reads one TOML value, such as a list of tables given in a variable. `None` when it is not TOML.
pub(super) fn read_value(text: &str, origin: &Origin) -> Option<Kind> {
    let (mut table, faults) = read(&format!("v = {text}"), &|_| origin.clone());
    let node = table
        .remove("v")
        .filter(|_| faults.is_empty() && table.is_empty())?;
    Some(node.kind)
}

fn read(text: &str, origin: &dyn Fn(usize) -> Origin) -> (BTreeMap<String, Node>, Vec<Fault>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        text,
        origin,
        broken: BTreeMap::new(),
        faults: Vec::new(),
    };
    for error in errors {
        reader.syntax_error(&error);
    }
    let table = reader.table(document.into_inner(), &KeyPath::default());
    // What is left stands on lines without a setting.
    for (line, reason) in std::mem::take(&mut reader.broken) {
        reader
            .faults
            .push(Fault::new("syntax", reason).at(origin(line)));
    }
    (table, reader.faults)
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self
            .text
            .bytes()
            .take(offset)
            .filter(|b| *b == b'\n')
            .count()
    }

    fn syntax_error(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(0..0);
        let line = self.line(span.start);
        match error.message() {
            "duplicate key" => {
                let key = self.text.get(span).unwrap_or("a key").to_owned();
                self.faults.push(
                    Fault::new(key, "is set twice in the same section").at((self.origin)(line)),
                );
            }
            // Both are what a bare word looks like to the parser; `no` and `40ms` are the usual ones.
            text if text.starts_with("invalid float")
                || text.starts_with("string values must be quoted") =>
            {
                self.broken.insert(
                    line,
                    "is not a TOML value; a text must stand in quotes".to_owned(),
                );
            }
            text => {
                self.broken.insert(line, format!("is not TOML: {text}"));
            }
        }
    }

    fn table(&mut self, table: DeTable<'_>, path: &KeyPath) -> BTreeMap<String, Node> {
        let mut nodes = BTreeMap::new();
        for (key, value) in table {
            let line = self.line(key.span().start);
            let key = key.into_inner().into_owned();
            let kind = self.value(value, line, &path.key(&key));
            nodes.insert(
                key,
                Node {
                    origin: (self.origin)(line),
                    kind,
                },
            );
        }
        nodes
    }

    fn value(&mut self, value: toml::Spanned<DeValue<'_>>, line: usize, path: &KeyPath) -> Kind {
        match value.get_ref() {
            DeValue::Table(_) => {
                let DeValue::Table(table) = value.into_inner() else {
                    return Kind::Broken;
                };
                Kind::Table(self.table(table, path))
            }
            DeValue::Array(items)
                if !items.is_empty()
                    && items
                        .iter()
                        .all(|i| matches!(i.get_ref(), DeValue::Table(_))) =>
            {
                let DeValue::Array(items) = value.into_inner() else {
                    return Kind::Broken;
                };
                let nodes = items.into_iter().enumerate().map(|(at, item)| {
                    let line = self.line(item.span().start);
                    let kind = self.value(item, line, &path.index(at));
                    Node {
                        origin: (self.origin)(line),
                        kind,
                    }
                });
                Kind::Tables(nodes.collect())
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => self.leaf(value, line, path),
        }
    }

    fn leaf(&mut self, value: toml::Spanned<DeValue<'_>>, line: usize, path: &KeyPath) -> Kind {
        if let Some(reason) = self.broken.remove(&line) {
            self.faults
                .push(Fault::new(path.to_string(), reason).at((self.origin)(line)));
            return Kind::Broken;
        }
        match Value::deserialize(ValueDeserializer::from(value)) {
            Ok(value) => Kind::Leaf(value),
            Err(_) => {
                self.faults
                    .push(Fault::new(path.to_string(), "is out of range").at((self.origin)(line)));
                Kind::Broken
            }
        }
    }
}

/// Sets `path` to `value`, over whatever stood there. Sections on the way are created; where a value stands in a section's place
/// nothing is set, and the check finds that value.
pub(super) fn insert(
    root: &mut BTreeMap<String, Node>,
    path: &[String],
    origin: &Origin,
    value: Kind,
) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        root.insert(
            key.clone(),
            Node {
                origin: origin.clone(),
                kind: value,
            },
        );
        return;
    }
    let node = root.entry(key.clone()).or_insert_with(|| Node {
        origin: origin.clone(),
        kind: Kind::Table(BTreeMap::new()),
    });
    if let Kind::Table(table) = &mut node.kind {
        insert(table, rest, origin, value);
    }
}
