//! Pages of memories.

use jiff::Timestamp;
use uuid::Uuid;

use super::row::{COLUMNS, FROM, label_needle, member, quoted};
use crate::memory::{Memory, Status};
use crate::store::postgres::links::Link;
use crate::store::postgres::rows::{
    OfOrg, Statement, composed, limit, memory_uuid, micros, org_uuid, stored_text,
};
use crate::store::{ListFilter, Matching, Reading, StoreError};

/// The conditions of a `SELECT` and what is bound to them.
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

enum Value {
    Text(String),
    Number(i64),
    Truth(bool),
    Id(Uuid),
    Ids(Vec<Uuid>),
}

impl Conditions {
    /// The number of the parameter that `value` is bound to, behind those of the partitions.
    fn bind(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() + 3
    }

    fn and(&mut self, condition: &str) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
    }

    /// `condition` with the number of `value`'s parameter in the place of `?`.
    fn and_with(&mut self, condition: &str, value: Value) {
        let number = self.bind(value);
        self.and(&condition.replace('?', &format!("${number}")));
    }

    fn read(&mut self, reading: Reading) {
        match reading {
            Reading::Current(now) => {
                self.and("m.status = 'active'");
                let valid = "m.valid_from <= ? AND (m.valid_until IS NULL OR m.valid_until > ?)";
                self.and_with(valid, Value::Number(micros(now)));
            }
            Reading::History(_) => self.and("m.status IN ('active', 'superseded')"),
            Reading::Review(_) => self.and("m.status = 'quarantined'"),
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
            self.and_with("m.status = ?", Value::Text(status.to_owned()));
        }
        if let Some(category) = category {
            self.and_with(
                "strpos(m.labels, ?) > 0",
                Value::Text(label_needle(*category)),
            );
        }
        if let Some(pinned) = pinned {
            self.and_with("m.pinned = ?", Value::Truth(*pinned));
        }
        let mut text = |condition, text: &Option<String>| {
            if let Some(text) = text {
                self.and_with(condition, Value::Text(stored_text(text).into_owned()));
            }
        };
        text("m.source_session = ?", session);
        text("m.source_kind = ?", source);
        let mut time = |condition, time: &Option<Timestamp>| {
            if let Some(time) = time {
                self.and_with(condition, Value::Number(micros(*time)));
            }
        };
        time("m.valid_from >= ?", from);
        time("m.valid_from < ?", until);
        for (name, value) in metadata {
            // A text, or a number or truth value as JSON writes it.
            let either = vec![member(name, &quoted(value)), member(name, value)];
            self.and_with("m.members && ?", Value::Ids(either));
        }
    }

    fn statement(self, group: &OfOrg<'_>) -> Statement {
        let statement = composed(self.sql)
            .bind(org_uuid(group.org))
            .bind(group.agents.as_slice())
            .bind(group.users.as_slice());
        self.values
            .into_iter()
            .fold(statement, |statement, value| match value {
                Value::Text(text) => statement.bind(text),
                Value::Number(number) => statement.bind(number),
                Value::Truth(truth) => statement.bind(truth),
                Value::Id(id) => statement.bind(id),
                Value::Ids(ids) => statement.bind(ids),
            })
    }
}

/// Adds the newest rows of each partition: one more than the page holds, which tells whether another page follows.
pub(super) async fn page_of(
    link: &mut Link,
    group: &OfOrg<'_>,
    filter: &ListFilter,
    memories: &mut Vec<Memory>,
) -> Result<(), StoreError> {
    let mut conditions = Conditions {
        sql: format!(
            "SELECT {COLUMNS} FROM {FROM} WHERE m.org = $1 AND m.agent = p.agent AND m.user_id = p.user_id"
        ),
        values: Vec::new(),
    };
    if let Some(after) = filter.after {
        conditions.and_with("m.id < ?", Value::Id(memory_uuid(after)));
    }
    conditions.read(filter.reading);
    conditions.matching(&filter.matching);
    let one_more = conditions.bind(Value::Number(limit(filter.limit).saturating_add(1)));
    let page = format!("{} ORDER BY m.id DESC LIMIT ${one_more}", conditions.sql);
    // A partition that is named twice is listed once.
    conditions.sql = format!(
        "SELECT page.* FROM (SELECT DISTINCT agent, user_id FROM unnest($2, $3) AS named (agent, user_id)) AS p CROSS JOIN LATERAL ({page}) AS page"
    );
    memories.extend(super::read(&link.rows(conditions.statement(group)).await?)?);
    Ok(())
}
