//! From the engine's errors to [`StoreError`] and [`OpenError`]: fixed texts only, because the engine's own may quote values.

use rusqlite::{Error, ErrorCode, ffi};

use crate::store::StoreError;

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or the file cannot be created or reached.
    #[error("the store's file cannot be opened: {0}")]
    File(#[from] std::io::Error),
    /// The file was written by a newer version.
    #[error(
        "the store has schema version {found} and this program knows versions up to {known}: use a newer one"
    )]
    NewerSchema {
        /// The file's version.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The file is a database, but not one of ours.
    #[error("the file is a database of another program")]
    Foreign,
    /// The engine refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error.sqlite_error() {
            Some(failure) if is_final(failure.code) => Self::Refused(reason(*failure)),
            Some(failure) => Self::Unavailable(reason(*failure)),
            // Without a code of the engine it is the binding that could not convert a value.
            None => Self::Damaged("row"),
        }
    }
}

/// Whether the engine would say the same again: it is about the statement and its values, not about the file or the machine.
const fn is_final(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConstraintViolation
            | ErrorCode::TypeMismatch
            | ErrorCode::TooBig
            | ErrorCode::ParameterOutOfRange
            | ErrorCode::ApiMisuse
            | ErrorCode::Unknown
    )
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the engine's other codes have no better text than their number"
)]
fn reason(failure: ffi::Error) -> String {
    let text = match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => "another process holds the lock",
        ErrorCode::DiskFull => "the disk is full",
        ErrorCode::ReadOnly => "the database is read-only",
        ErrorCode::SystemIoFailure => "the disk reported an error",
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => "the file cannot be opened",
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            "the file is damaged or not a database"
        }
        ErrorCode::OutOfMemory => "out of memory",
        _ => return format!("engine error {}", failure.extended_code),
    };
    text.to_owned()
}

/// Gives the constraints of one statement their meaning: `taken` when a key exists already, `missing` when the parent row does not.
pub(super) fn constraint(error: Error, taken: &'static str, missing: &'static str) -> StoreError {
    match error.sqlite_error().map(|failure| failure.extended_code) {
        Some(ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_UNIQUE) => {
            StoreError::Conflict(taken)
        }
        Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => StoreError::Missing(missing),
        _ => error.into(),
    }
}

/// The answer after [`close`](super::SqliteStore::close).
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}
