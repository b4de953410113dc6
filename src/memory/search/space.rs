//! Which vectors a partition is searched by. A partition lies in one space for as long as it is in memory, so that no search meets vectors
//! of two models in it.
//!
//! The configured embedder's stored vectors serve as soon as every memory of the partition has one. Until then, after a change of the
//! embedder, the built-in one serves: it makes a vector from a text in microseconds, so nothing of it need be stored or waited for.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::memory::embedder::{StaticMiniLm, static_minilm};
use crate::memory::{Memory, PartitionKey};

/// The space of one partition.
#[derive(Debug, Clone)]
pub(super) enum Space {
    /// The stored vectors of this model; a memory without one is found by its words alone.
    Stored(Arc<str>),
    /// Vectors that the built-in embedder makes from the texts.
    Computed,
}

impl Space {
    /// The model whose query vectors can be compared here.
    pub(super) fn model(&self) -> &str {
        match self {
            Self::Stored(model) => model,
            Self::Computed => static_minilm::MODEL,
        }
    }

    /// The vector of a memory in this space.
    pub(super) fn vector<'a>(&self, memory: &'a Memory) -> Option<Cow<'a, [f32]>> {
        let stored = memory.embedding.as_ref();
        let stored = stored.filter(|embedding| &*embedding.model == self.model());
        match (stored, self) {
            (Some(embedding), _) => Some(Cow::Borrowed(&embedding.vector)),
            (None, Self::Stored(_)) => None,
            (None, Self::Computed) => {
                let made = StaticMiniLm::shared().embed_document(&memory.content);
                Some(Cow::Owned(made))
            }
        }
    }
}

/// Which partitions are not wholly embedded by the configured model.
#[derive(Debug)]
pub struct Spaces {
    wanted: Arc<str>,
    /// `None` until the store was asked.
    behind: RwLock<Option<HashSet<PartitionKey>>>,
}

impl Spaces {
    /// The spaces of a server that wants vectors of `wanted`; which partitions lack some is not known yet.
    #[must_use]
    pub fn unknown(wanted: Arc<str>) -> Self {
        Self {
            wanted,
            behind: RwLock::default(),
        }
    }

    /// The same where every memory has its vector.
    #[must_use]
    pub fn complete(wanted: Arc<str>) -> Self {
        let spaces = Self::unknown(wanted);
        spaces.set_behind(HashSet::new());
        spaces
    }

    /// The configured model.
    #[must_use]
    pub fn wanted(&self) -> &Arc<str> {
        &self.wanted
    }

    /// Says which partitions lack vectors of the configured model.
    pub fn set_behind(&self, partitions: HashSet<PartitionKey>) {
        *self.behind.write() = Some(partitions);
    }

    /// A partition is complete now. What is in memory of it stays in its former space until it is loaded again.
    pub fn completed(&self, partition: &PartitionKey) {
        if let Some(behind) = self.behind.write().as_mut() {
            behind.remove(partition);
        }
    }

    /// Where a partition that is loaded now lies. Before the store was asked, where it can always be searched.
    pub(super) fn of(&self, partition: &PartitionKey) -> Space {
        match self.behind.read().as_ref() {
            Some(behind) if !behind.contains(partition) => Space::Stored(Arc::clone(&self.wanted)),
            Some(_) | None => Space::Computed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Space, Spaces};
    use crate::ids::{AgentId, OrgId};
    use crate::memory::PartitionKey;
    use crate::memory::embedder::static_minilm;

    fn key() -> PartitionKey {
        PartitionKey {
            org: OrgId::new(),
            agent: AgentId::new(),
            user: None,
        }
    }

    #[test]
    fn the_configured_model_serves_a_partition_once_nothing_is_missing() {
        let (done, behind) = (key(), key());
        let spaces = Spaces::unknown("new/2".into());
        assert_eq!(spaces.of(&done).model(), static_minilm::MODEL);
        spaces.set_behind(HashSet::from([behind.clone()]));
        assert_eq!(spaces.of(&done).model(), "new/2");
        assert_eq!(spaces.of(&behind).model(), static_minilm::MODEL);
        spaces.completed(&behind);
        assert_eq!(spaces.of(&behind).model(), "new/2");
    }

    #[test]
    fn a_space_has_vectors_of_its_own_model_only() {
        let mut memory = crate::memory::search::tests::embedded(
            &key(),
            "Tea is in the left cupboard.",
            &[0.0, 1.0],
            "new/2",
        );
        let (stored, other) = (Space::Stored("new/2".into()), Space::Stored("old/2".into()));
        assert_eq!(stored.vector(&memory).as_deref(), Some(&[0.0, 1.0][..]));
        assert_eq!(other.vector(&memory), None);
        let computed = Space::Computed.vector(&memory).map(|v| v.len());
        assert_eq!(computed, Some(static_minilm::DIMENSIONS));
        memory.embedding = None;
        assert_eq!(stored.vector(&memory), None);
        assert!(Space::Computed.vector(&memory).is_some());
    }
}
