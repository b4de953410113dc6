//! The tables that are moved, parents before children, with what their columns hold. The names are those of an export; an engine may
//! call a column otherwise.

use super::super::StoreError;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier of 16 bytes.
    Id,
    /// Bytes.
    Bytes,
    /// Text.
    Text,
    /// A whole number, or a time in microseconds.
    Int,
    /// A truth value.
    Bool,
    /// A number with a fraction.
    Real,
    /// A vector: little-endian 32-bit floats.
    Vector,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

/// What a row hangs on besides its organisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// Nothing.
    None,
    /// A session, named by the row's second to fourth column: `agent`, `user`, `session`.
    Session,
}

/// A table. Its first column is the organisation.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What its rows hang on.
    pub parent: Parent,
    /// Its columns.
    pub columns: &'static [Column],
}

/// The table of that name.
///
/// # Errors
/// When there is none.
pub fn table(name: &str) -> Result<&'static Table, StoreError> {
    let found = TABLES.iter().find(|table| table.name == name);
    found.ok_or(StoreError::Missing("table"))
}

macro_rules! tables {
    ($($table:ident $parent:ident { $($column:ident $kind:ident,)* })*) => {
        /// Every table, in an order in which rows can be put back.
        pub static TABLES: &[Table] = &[$(Table {
            name: stringify!($table),
            parent: Parent::$parent,
            columns: &[$(Column { name: stringify!($column), kind: Kind::$kind },)*],
        },)*];
    };
}

tables! {
    orgs None { id Id, name Text, status Text, created_at Int, }
    agents None { org Id, id Id, name Text, status Text, capture Text, created_at Int, }
    tokens None {
        org Id, id Id, agent Id, user Text, name Text, permissions Int, digest Bytes, created_at Int, expires_at Int, revoked_at Int,
    }
    directives None {
        org Id, agent Id, version Int, content Text, mode Text, content_hash Bytes, created_at Int, revoked_at Int,
    }
    directive_activations None { org Id, agent Id, position Int, version Int, }
    memories None {
        org Id, agent Id, user Text, id Id, content Text, labels Text, confidence Real, valid_from Int, valid_until Int, observed_at Int,
        source_kind Text, source_session Text, source_turn Int, metadata Text, pinned Bool, status Text, revision Int, content_hash Bytes,
        retrieval_count Int, votes_useful Int, votes_not_useful Int, created_at Int, updated_at Int, retrieved_at Int,
        embedding_model Text, embedding Vector, tokens_o200k Int, tokens_cl100k Int, tokens_claude Int, tokens_unknown Int,
        text_revision Int, supersedes Bytes, slot Bytes, review Text,
    }
    memory_relations None { org Id, agent Id, user Text, source Id, target Id, kind Text, by Text, at Int, }
    escalations None {
        org Id, agent Id, user Text, id Id, newer Id, older Id, guess Text, status Text, decision Text, created_at Int, settled_at Int,
    }
    ledger None { org Id, agent Id, key Text, asked Bytes, outcomes Text, at Int, }
    dead_letters None { org Id, agent Id, user Text, session Text, turn Int, reason Text, attempts Int, at Int, }
    forget_fences None { org Id, agent Id, user Text, revision Int, }
    sessions None { org Id, agent Id, user Text, id Text, created_at Int, used_at Int, terminated_at Int, turns Int, }
    session_lanes Session {
        org Id, agent Id, user Text, session Text, lane Text, epoch Int, nonce_epoch Int, directive Int, snapshot Bytes, sha256 Bytes,
        reason Text, drops_blocks Bool, at Int,
    }
    session_turns Session {
        org Id, agent Id, user Text, session Text, position Int, lane Text, live Bool, chain Bytes, anchor Bytes, nonce_epoch Int,
        memories Bytes, state_from Int, state_to Int, digest Bytes, at Int, calls Int, prompt_tokens Int, cached_tokens Int,
        completion_tokens Int, ms Int, stream Bool, complete Bool, ended_at Int,
    }
    session_states Session { org Id, agent Id, user Text, session Text, version Int, json Text, turn Int, at Int, }
}
