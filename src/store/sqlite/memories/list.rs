//! Pages of a partition's memories.

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::row::{COLUMNS, Reader, label_needle};
use crate::memory::{Memory, PartitionKey, Status};
use crate::store::sqlite::rows::{limit, micros, user_column};
use crate::store::{ListFilter, Matching, Reading, StoreError};

/// The conditions of a `SELECT` and what is bound to them.
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

impl Conditions {
    fn bind(&mut self, value: impl Into<Value>) -> usize {
        self.values.push(value.into());
        self.values.len()
    }

    fn and(&mut self, condition: &str) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
    }

    /// `condition` with the number of `value`'s parameter in the place of `?`.
    fn and_with(&mut self, condition: &str, value: impl Into<Value>) {
        let number = self.bind(value);
        self.and(&condition.replace('?', &format!("?{number}")));
    }

    fn read(&mut self, reading: Reading) {
        match reading {
            Reading::Current(now) => {
                self.and("status = 'active'");
                self.and_with(
                    "valid_from <= ? AND (valid_until IS NULL OR valid_until > ?)",
                    micros(now),
                );
            }
            Reading::History(_) => self.and("status IN ('active', 'superseded')"),
            Reading::Review(_) => self.and("status = 'quarantined'"),
        }
    }

    fn matching(&mut self, matching: &Matching) {
        let Matching {
            status,
            category,
            pinned,
            session,
            source,
            from,
            until,
            metadata,
        } = matching;
        if let Some(status) = status.map(Status::as_str) {
            self.and_with("status = ?", status.to_owned());
        }
        if let Some(category) = category {
            self.and_with("instr(labels, ?) > 0", label_needle(*category));
        }
        if let Some(pinned) = pinned {
            self.and_with("pinned = ?", *pinned);
        }
        if let Some(session) = session {
            self.and_with("source_session = ?", session.clone());
        }
        if let Some(source) = source {
            self.and_with("source_kind = ?", source.clone());
        }
        let mut time = |condition, time: &Option<Timestamp>| {
            if let Some(time) = time {
                self.and_with(condition, micros(*time));
            }
        };
        time("valid_from >= ?", from);
        time("valid_from < ?", until);
        for (name, value) in metadata {
            self.member(name, value);
        }
    }

    /// A member of the client's object, by its JSON text.
    fn member(&mut self, name: &str, value: &str) {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let path = self.bind(format!("$.{}", quoted(name)));
        let (text, other) = (self.bind(quoted(value)), self.bind(value.to_owned()));
        self.and(&format!("metadata -> ?{path} IN (?{text}, ?{other})"));
    }
}

/// Adds one row more than the page holds, which tells whether another page follows.
pub(super) fn page_of(
    conn: &Connection,
    partition: &PartitionKey,
    filter: &ListFilter,
    memories: &mut Vec<Memory>,
) -> Result<(), StoreError> {
    let PartitionKey { org, agent, user } = partition;
    let mut conditions = Conditions {
        sql: format!("SELECT {COLUMNS} FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3"),
        values: vec![
            org.as_bytes().to_vec().into(),
            agent.as_bytes().to_vec().into(),
            user_column(user.as_ref()).to_owned().into(),
        ],
    };
    if let Some(after) = filter.after {
        conditions.and_with("id < ?", after.as_bytes().to_vec());
    }
    conditions.read(filter.reading);
    conditions.matching(&filter.matching);
    let one_more = conditions.bind(limit(filter.limit).saturating_add(1));
    let Conditions { sql, values } = conditions;
    let sql = format!("{sql} ORDER BY id DESC LIMIT ?{one_more}");
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query(params_from_iter(values))?;
    let mut reader = Reader::default();
    while let Some(row) = rows.next()? {
        memories.push(reader.memory(row)?);
    }
    Ok(())
}
