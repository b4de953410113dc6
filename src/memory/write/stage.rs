//! The stages of the memory write path, named once for documents and tests.

/// A stage of the write path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStage {
    /// Fields and limits.
    Validate,
    /// The same content already active.
    ExactDedup,
    /// Text to vector.
    Embed,
    /// One transaction.
    Persist,
    /// Index and hot set.
    AfterCommit,
}

impl WriteStage {
    /// Every stage in order.
    pub const ALL: [Self; 5] = [
        Self::Validate,
        Self::ExactDedup,
        Self::Embed,
        Self::Persist,
        Self::AfterCommit,
    ];

    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::ExactDedup => "exact_dedup",
            Self::Embed => "embed",
            Self::Persist => "persist",
            Self::AfterCommit => "after_commit",
        }
    }
}
