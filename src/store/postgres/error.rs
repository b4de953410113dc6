//! From the engine's errors to [`StoreError`] and [`OpenError`]: fixed texts only, because the engine's own may quote values.

use std::io::ErrorKind;

use sqlx::Error;

use crate::store::StoreError;

/// Why the store could not be opened or its schema not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `postgres.url` is not set, or not a URL of a PostgreSQL database.
    #[error("postgres.url is not the URL of a PostgreSQL database")]
    Url,
    /// The server of the URL cannot be used.
    #[error("postgres.url: {0}")]
    Unreachable(&'static str),
    /// The schema is older than this program.
    #[error(
        "the database has schema version {found} and this program needs {known}: run `ibex migrate`"
    )]
    OlderSchema {
        /// The database's version; 0 when it has no schema of ours.
        found: i64,
        /// The version this program needs.
        known: i64,
    },
    /// The schema was written by a newer version.
    #[error(
        "the database has schema version {found} and this program knows versions up to {known}: use a newer program"
    )]
    NewerSchema {
        /// The database's version.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The user of the URL may not act as the role.
    #[error(
        "the user of postgres.url may not act as the role {0:?}: an administrator has to grant it that role"
    )]
    NotGranted(String),
    /// The role would not be bound by row-level security, or could switch it off.
    #[error("the role {role:?} {fault}: rows of tenants would not be kept apart")]
    UnboundRole {
        /// The configured role.
        role: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A table with content of tenants is open to all of them.
    #[error("row-level security is not forced on every table of tenants: run `ibex migrate`")]
    UnprotectedTables,
    /// The migrating user lacks a right.
    #[error(
        "the user of postgres.url may not {0}: let an administrator do it, or run `ibex migrate` as one"
    )]
    Forbidden(&'static str),
    /// The server has no pgvector.
    #[error("the server does not have the extension pgvector")]
    NoVectors,
    /// The server's pgvector is too old.
    #[error("the extension pgvector is older than 0.8: update it")]
    OldVectors,
    /// The engine refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        let why = match (&fault, fault.code().as_deref()) {
            (_, Some("28P01" | "28000")) => {
                Some("its server refuses the login: check user and password")
            }
            (_, Some("3D000")) => Some("its server has no such database"),
            (Fault::Engine(Error::Io(error)), _) => of_socket(error.kind()),
            (Fault::Engine(Error::Tls(_)), _) => {
                Some("TLS with its server fails: check sslmode and sslrootcert")
            }
            (Fault::Engine(Error::Configuration(_)), _) => {
                Some("one of its parameters is not usable")
            }
            (Fault::Late, _) => Some("its server does not answer in time"),
            (Fault::Engine(_) | Fault::Resting | Fault::Closed, _) => None,
        };
        why.map_or_else(|| Self::Store(fault.into()), Self::Unreachable)
    }
}

/// Why a server could not be reached; nothing when it was.
fn of_socket(kind: ErrorKind) -> Option<&'static str> {
    if kind == ErrorKind::ConnectionRefused {
        Some("nothing listens at its host and port")
    } else if kind == ErrorKind::NotFound {
        Some("a file that it names is not there")
    } else if kind == ErrorKind::UnexpectedEof || kind == ErrorKind::ConnectionReset {
        None
    } else {
        Some("its host cannot be found or reached")
    }
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The engine's or the driver's reason.
    Engine(Error),
    /// It is left alone for a moment.
    Resting,
    /// No answer in time.
    Late,
    /// The store is closed.
    Closed,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        if matches!(error, Error::PoolClosed) {
            return Self::Closed;
        }
        Self::Engine(error)
    }
}

impl Fault {
    /// The engine's code.
    pub(super) fn code(&self) -> Option<String> {
        let Self::Engine(Error::Database(error)) = self else {
            return None;
        };
        error.code().map(|code| code.into_owned())
    }

    /// Whether the connection is of no use any more.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Self::Engine(Error::Database(_)) => self.code().is_some_and(|code| {
                code.starts_with("08")
                    || matches!(&*code, "57P01" | "57P02" | "57P05" | "25P03" | "25P04")
            }),
            Self::Engine(
                Error::Io(_) | Error::Tls(_) | Error::Protocol(_) | Error::WorkerCrashed,
            )
            | Self::Late => true,
            Self::Engine(_) | Self::Closed | Self::Resting => false,
        }
    }

    /// Whether the connection was lost before or while the statement ran, rather than slow: another one may do better.
    pub(super) fn lost_connection(&self) -> bool {
        self.breaks_connection() && !matches!(self, Self::Late)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        if let Some(code) = fault.code() {
            return of_code(&code);
        }
        let text = match fault {
            Fault::Closed => "the store is closed",
            Fault::Resting => "the database has not answered for a while",
            Fault::Late => "the database does not answer",
            Fault::Engine(Error::PoolTimedOut) => "no connection to the database in time",
            Fault::Engine(Error::Encode(_)) => return Self::Refused("a value".to_owned()),
            Fault::Engine(
                Error::Decode(_)
                | Error::ColumnDecode { .. }
                | Error::ColumnIndexOutOfBounds { .. }
                | Error::ColumnNotFound(_),
            ) => return Self::Damaged("row"),
            Fault::Engine(_) => "the connection to the database was lost",
        };
        Self::Unavailable(text.to_owned())
    }
}

/// What a code of the engine means: its class first, then the codes that have a text of their own.
fn of_code(code: &str) -> StoreError {
    let unavailable = |text: &str| StoreError::Unavailable(text.to_owned());
    let refused = |text: &str| StoreError::Refused(text.to_owned());
    let class = code.get(..2).unwrap_or_default();
    match (class, code) {
        (_, "25006") => unavailable("the database is read-only"),
        (_, "53100") => unavailable("the disk is full"),
        (_, "53200") => unavailable("out of memory"),
        (_, "53300") => unavailable("the database takes no more connections"),
        (_, "57014") => unavailable("the statement took too long"),
        (_, "55P03") | ("40", _) => unavailable("another write was in the way"),
        (_, "57P03") => unavailable("the database is starting or stopping"),
        ("08" | "57", _) | (_, "25P03" | "25P04") => {
            unavailable("the connection to the database was lost")
        }
        ("28" | "3D", _) => unavailable("the database refuses the login"),
        ("53" | "54", _) => unavailable("the database lacks a resource"),
        ("58", _) => unavailable("the disk reported an error"),
        ("XX", "XX001" | "XX002") => unavailable("the database is damaged"),
        (_, "42501") => refused("a right is missing"),
        ("42" | "3F", _) => unavailable("the schema is not the one that this program knows"),
        ("22", _) => refused("a value"),
        ("23", _) => refused("a constraint"),
        _ => unavailable(&format!("engine error {code}")),
    }
}

/// Gives the constraints of one statement their meaning: `taken` when a key exists already, `missing` when the parent row does not.
pub(super) fn constraint(fault: Fault, taken: &'static str, missing: &'static str) -> StoreError {
    match fault.code().as_deref() {
        Some("23505") => StoreError::Conflict(taken),
        Some("23503") => StoreError::Missing(missing),
        _ => fault.into(),
    }
}
