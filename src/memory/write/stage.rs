//! The stages of the memory write path, named once for documents and tests.

/// A stage of the write path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStage {
    /// Fields, limits and labels.
    Validate,
    /// Personal data and secrets out of the text.
    RedactPii,
    /// The same text or claim already active.
    ExactDedup,
    /// Text to vector.
    Embed,
    /// What is much alike.
    NearDedup,
    /// What it replaces, refines or contradicts.
    Conflict,
    /// One transaction.
    Persist,
    /// Index and hot set.
    AfterCommit,
}

impl WriteStage {
    /// Every stage in order.
    pub const ALL: [Self; 8] = [
        Self::Validate,
        Self::RedactPii,
        Self::ExactDedup,
        Self::Embed,
        Self::NearDedup,
        Self::Conflict,
        Self::Persist,
        Self::AfterCommit,
    ];

    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::RedactPii => "redact_pii",
            Self::ExactDedup => "exact_dedup",
            Self::Embed => "embed",
            Self::NearDedup => "near_dedup",
            Self::Conflict => "conflict",
            Self::Persist => "persist",
            Self::AfterCommit => "after_commit",
        }
    }
}
