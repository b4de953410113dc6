//! Values to columns and back.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, Decode, Postgres, Row, Type};
use uuid::Uuid;

use crate::ids::{AgentId, MemoryId, OrgId, UserId};
use crate::memory::PartitionKey;
use crate::store::StoreError;

/// A statement with its values.
pub(super) type Statement = sqlx::query::Query<'static, Postgres, PgArguments>;

/// A statement whose text is put together from constants of this program, never from values.
pub(super) fn composed(sql: String) -> Statement {
    sqlx::query(AssertSqlSafe(sql))
}

/// Microseconds since 1970: what every time column holds. Finer digits are cut off.
pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// The `user_id` column of a partition: the user, or nothing for agent-wide.
pub(super) fn user_column(user: Option<&UserId>) -> &str {
    user.map_or("", UserId::as_str)
}

/// A `LIMIT`.
pub(super) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

macro_rules! uuid_of {
    ($name:ident, $id:ty) => {
        /// An identifier as its column.
        pub(super) fn $name(id: $id) -> Uuid {
            Uuid::from_bytes(*id.as_bytes())
        }
    };
}

uuid_of!(org_uuid, OrgId);
uuid_of!(agent_uuid, AgentId);
uuid_of!(memory_uuid, MemoryId);

/// Identifiers as an array.
pub(super) fn memory_uuids(ids: &[MemoryId]) -> Vec<Uuid> {
    ids.iter().copied().map(memory_uuid).collect()
}

/// The first three columns of most tables.
pub(super) fn scope(partition: &PartitionKey) -> (Uuid, Uuid, &str) {
    let PartitionKey { org, agent, user } = partition;
    (
        org_uuid(*org),
        agent_uuid(*agent),
        user_column(user.as_ref()),
    )
}

/// Partitions of one organisation, as two arrays.
pub(super) struct OfOrg<'a> {
    pub(super) org: OrgId,
    pub(super) agents: Vec<Uuid>,
    pub(super) users: Vec<&'a str>,
}

/// Partitions by their organisation, in the order in which it first occurs. There is one, as a rule.
pub(super) fn by_org(partitions: &[PartitionKey]) -> Vec<OfOrg<'_>> {
    let mut groups: Vec<OfOrg<'_>> = Vec::with_capacity(1);
    for partition in partitions {
        let (agent, user) = (
            agent_uuid(partition.agent),
            user_column(partition.user.as_ref()),
        );
        match groups.iter_mut().find(|group| group.org == partition.org) {
            Some(group) => {
                group.agents.push(agent);
                group.users.push(user);
            }
            None => groups.push(OfOrg {
                org: partition.org,
                agents: vec![agent],
                users: vec![user],
            }),
        }
    }
    groups
}

/// What stands for the next character in a stored text.
const ESCAPE: char = '\u{1}';

/// A text as it is stored. The engine takes every character but the zero byte, so that one and the escape itself become two.
pub(super) fn stored_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => stored.extend([ESCAPE, '0']),
            ESCAPE => stored.extend([ESCAPE, '1']),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// A stored text as it was written.
fn written_text(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        if character != ESCAPE {
            text.push(character);
        } else if characters.next() == Some('0') {
            text.push('\0');
        } else {
            text.push(ESCAPE);
        }
    }
    text
}

/// Reads a row's columns one after the other, in the order of the `SELECT`.
pub(super) struct Columns<'r> {
    row: &'r PgRow,
    next: usize,
    what: &'static str,
}

impl<'r> Columns<'r> {
    /// `what` names the row in the error when a column does not hold what it should.
    pub(super) fn of(row: &'r PgRow, what: &'static str) -> Self {
        Self { row, next: 0, what }
    }

    pub(super) fn damaged(&self) -> StoreError {
        StoreError::Damaged(self.what)
    }

    pub(super) fn take<T: Decode<'r, Postgres> + Type<Postgres>>(
        &mut self,
    ) -> Result<T, StoreError> {
        let value = self.row.try_get(self.next).map_err(|_| self.damaged())?;
        self.next += 1;
        Ok(value)
    }

    /// An identifier's bytes.
    pub(super) fn id(&mut self) -> Result<[u8; 16], StoreError> {
        Ok(self.take::<Uuid>()?.into_bytes())
    }

    pub(super) fn optional_id(&mut self) -> Result<Option<[u8; 16]>, StoreError> {
        Ok(self.take::<Option<Uuid>>()?.map(Uuid::into_bytes))
    }

    /// A number of a narrower type than the column's.
    pub(super) fn number<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        T::try_from(self.take()?).map_err(|_| self.damaged())
    }

    pub(super) fn optional_number<T: TryFrom<i64>>(&mut self) -> Result<Option<T>, StoreError> {
        let number: Option<i64> = self.take()?;
        number
            .map(|n| T::try_from(n).map_err(|_| self.damaged()))
            .transpose()
    }

    /// A text that may hold any character.
    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.take().map(written_text)
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.take::<Option<String>>()?.map(written_text))
    }

    pub(super) fn shared_text(&mut self) -> Result<Arc<str>, StoreError> {
        self.text().map(Arc::from)
    }

    /// Fixed bytes that may be absent.
    pub(super) fn optional_bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, StoreError> {
        let bytes: Option<&[u8]> = self.take()?;
        bytes
            .map(|b| b.try_into().map_err(|_| self.damaged()))
            .transpose()
    }

    /// Fixed bytes.
    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        self.optional_bytes()?.ok_or_else(|| self.damaged())
    }

    /// A text column through `parse`.
    pub(super) fn parsed<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        let text = self.take()?;
        parse(text).ok_or_else(|| self.damaged())
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, StoreError> {
        let micros = self.take()?;
        Timestamp::from_microsecond(micros).map_err(|_| self.damaged())
    }

    pub(super) fn optional_time(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let micros: Option<i64> = self.take()?;
        micros
            .map(|m| Timestamp::from_microsecond(m).map_err(|_| self.damaged()))
            .transpose()
    }

    /// A list of identifiers.
    pub(super) fn ids(&mut self) -> Result<Vec<MemoryId>, StoreError> {
        let ids: Vec<Uuid> = self.take()?;
        Ok(ids
            .into_iter()
            .map(|id| MemoryId::from_bytes(id.into_bytes()))
            .collect())
    }

    /// A user column; NULL and '' are both "no user".
    pub(super) fn user(&mut self) -> Result<Option<UserId>, StoreError> {
        match self.take::<Option<&str>>()? {
            None | Some("") => Ok(None),
            Some(user) => user.parse().map(Some).map_err(|_| self.damaged()),
        }
    }

    /// Organisation, agent and user.
    pub(super) fn partition(&mut self) -> Result<PartitionKey, StoreError> {
        Ok(PartitionKey {
            org: OrgId::from_bytes(self.id()?),
            agent: AgentId::from_bytes(self.id()?),
            user: self.user()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{stored_text, written_text};

    #[test]
    fn every_text_comes_back_and_no_stored_one_has_a_zero_byte() {
        for text in [
            "",
            "tea",
            "a\0b",
            "\u{1}",
            "\u{1}0",
            "\0\u{1}\0",
            "茶\0\u{1f375}",
        ] {
            let stored = stored_text(text).into_owned();
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(written_text(stored), text);
        }
    }
}
