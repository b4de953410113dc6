//! Results on standard output: tables for people, JSON for scripts.

use std::fmt;
use std::io::{self, Write};

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde::Serialize;

/// Longest text in a table cell, in characters.
const CELL: usize = 72;

/// One row of a list.
pub trait Record: Serialize {
    /// Column names.
    const HEADERS: &'static [&'static str];

    /// The row's cells, as many as there are names.
    fn cells(&self) -> Vec<String>;
}

/// Where results go.
pub struct Out<'a> {
    json: bool,
    to: &'a mut dyn Write,
}

impl fmt::Debug for Out<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out")
            .field("json", &self.json)
            .finish_non_exhaustive()
    }
}

impl<'a> Out<'a> {
    /// Writes to `to`, as JSON when `json` is set.
    pub fn new(json: bool, to: &'a mut dyn Write) -> Self {
        Self { json, to }
    }

    /// Whether scripts read this.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// A list: a JSON array, or a table.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn list<T: Record>(&mut self, rows: &[T]) -> io::Result<()> {
        if self.json {
            self.value(&rows)
        } else {
            self.table(rows)
        }
    }

    /// One thing: a JSON object, or the given sentence.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn one(&mut self, value: &impl Serialize, sentence: impl fmt::Display) -> io::Result<()> {
        if self.json {
            self.value(value)
        } else {
            self.line(sentence)
        }
    }

    /// A table, whatever the format.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn table<T: Record>(&mut self, rows: &[T]) -> io::Result<()> {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_header(T::HEADERS.to_vec());
        for row in rows {
            table.add_row(
                row.cells()
                    .iter()
                    .map(|cell| printable(cell))
                    .collect::<Vec<_>>(),
            );
        }
        self.line(table.trim_fmt())
    }

    /// JSON on one line.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn value(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        self.line(text)
    }

    /// A line of text.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.to, "{text}")?;
        self.to.flush()
    }
}

/// Text that comes from users, made safe for a terminal: one line, no control characters, not endless.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(CELL + 1)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if shown.chars().count() > CELL {
        shown = shown.chars().take(CELL - 1).chain(['…']).collect();
    }
    shown
}

/// A time for people, to the minute, in UTC.
#[must_use]
pub fn minute(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::{Out, Record, printable};

    #[derive(Serialize)]
    struct Row {
        name: &'static str,
    }

    impl Record for Row {
        const HEADERS: &'static [&'static str] = &["NAME", "LENGTH"];

        fn cells(&self) -> Vec<String> {
            vec![self.name.to_owned(), self.name.len().to_string()]
        }
    }

    fn shown(json: bool) -> String {
        let mut bytes = Vec::new();
        Out::new(json, &mut bytes)
            .list(&[Row { name: "a\x1b[2Jb" }, Row { name: "c" }])
            .unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_list_is_a_table_or_an_array() {
        let table = shown(false);
        assert!(
            table.contains("NAME") && table.contains("LENGTH"),
            "{table}"
        );
        assert!(!table.contains('\x1b'), "{table:?}");
        assert_eq!(table.lines().count(), 3);
        assert_eq!(
            shown(true),
            "[{\"name\":\"a\\u001b[2Jb\"},{\"name\":\"c\"}]\n"
        );
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(printable("a\nb"), "a b");
        let cut = printable(&"ä".repeat(100));
        assert_eq!(cut.chars().count(), 72);
        assert!(cut.ends_with('…'));
    }
}
