//! The permission bits of a token. The positions are fixed: stored tokens and issued JWT claims depend on them.

use serde::{Deserialize, Serialize};

/// A set of permissions, one bit each. Bits without a constant here are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Permissions(u64);

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Permissions {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// Every permission with its name, in bit order.
            pub const NAMED: &'static [(&'static str, Self)] = &[$(($text, Self::$name)),*];
        }
    };
}

permissions! {
    /// Read and search memories, and have them injected.
    MEMORY_READ = 0, "MemoryRead";
    /// Create and change memories of a user.
    MEMORY_WRITE = 1, "MemoryWrite";
    /// Forget memories.
    MEMORY_DELETE = 2, "MemoryDelete";
    /// Export memories in bulk.
    MEMORY_BULK_EXPORT = 3, "MemoryBulkExport";
    /// Write memories that every user of the agent sees.
    MEMORY_WRITE_SHARED = 4, "MemoryWriteShared";
    /// See what is held for review, and decide: quarantined memories and open questions.
    MEMORY_REVIEW = 5, "MemoryReview";
    /// Rank a search by weights of one's own.
    MEMORY_WEIGHTS = 6, "MemoryWeights";
    /// Read directives.
    DIRECTIVE_READ = 8, "DirectiveRead";
    /// Add directive versions.
    DIRECTIVE_WRITE = 9, "DirectiveWrite";
    /// Make a directive version the active one.
    DIRECTIVE_PROMOTE = 10, "DirectivePromote";
    /// Take a directive back.
    DIRECTIVE_REVOKE = 11, "DirectiveRevoke";
    /// Open sessions.
    SESSION_CREATE = 16, "SessionCreate";
    /// Go on with sessions and read them.
    SESSION_READ = 17, "SessionRead";
    /// End sessions.
    SESSION_TERMINATE = 18, "SessionTerminate";
    /// Read operational metadata.
    OPERATOR_METADATA_READ = 19, "OperatorMetadataRead";
    /// Name the end user in `X-IBEX-User-ID`.
    ACT_FOR_USER = 20, "ActForUser";
    /// Look at the console.
    CONSOLE_READ = 21, "ConsoleRead";
    /// Create tokens.
    TOKEN_CREATE = 36, "TokenCreate";
    /// Revoke tokens.
    TOKEN_REVOKE = 37, "TokenRevoke";
}

impl Permissions {
    /// No permission at all.
    pub const NONE: Self = Self(0);
    /// What a chat request needs: memories read, sessions created and read.
    pub const CHAT: Self =
        Self(Self::MEMORY_READ.0 | Self::SESSION_CREATE.0 | Self::SESSION_READ.0);

    /// Every named permission.
    #[must_use]
    pub fn all() -> Self {
        Self::NAMED
            .iter()
            .fold(Self::NONE, |set, (_, one)| set.with(*one))
    }

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every permission of `needed` is held.
    #[must_use]
    pub const fn holds(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The stored form.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reads the stored form; reserved bits are dropped, so they can never grant anything later.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & Self::all().0)
    }

    /// The permission with this name (`MemoryRead`).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED
            .iter()
            .find(|(text, _)| *text == name)
            .map(|(_, one)| *one)
    }

    /// The names of the held permissions, in bit order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED
            .iter()
            .filter(move |(_, one)| self.holds(*one))
            .map(|(text, _)| *text)
    }
}
