//! Stage 3, exact dedup: takes redacted memories, yields those that no active row of the partition says already.
//!
//! A hash, not a model call: a repeated write costs neither an embedding nor a transaction of its own. The store holds the same rule as
//! a unique index, so a race between two writers has the same answer.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::app::App;
use crate::ids::MemoryId;
use crate::memory::pii::is_invisible;
use crate::memory::{Memory, PartitionKey, Source, Status};
use crate::store::StoreError;

use super::{Batch, Member, WriteError};

/// SHA-256 of the content with compatibility-composed characters, lower case, white space collapsed and invisible characters dropped:
/// what a reader would call the same text.
#[must_use]
pub fn content_hash(content: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let folded: String = content
        .nfkc()
        .filter(|c| !is_invisible(*c))
        .flat_map(char::to_lowercase)
        .collect();
    for (i, word) in folded.split_whitespace().enumerate() {
        if i > 0 {
            hasher.update(b" ");
        }
        hasher.update(word.as_bytes());
    }
    hasher.finalize().into()
}

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    let mut first: HashMap<[u8; 32], usize, foldhash::fast::RandomState> = HashMap::default();
    for (place, member) in batch.members.iter_mut().enumerate() {
        let Member::Going(candidate) = member else {
            continue;
        };
        let memory = &mut candidate.memory;
        memory.content_hash = content_hash(&memory.content);
        if let Some(earlier) = first.get(&memory.content_hash) {
            *member = Member::Repeats(*earlier);
            continue;
        }
        match existing(app, memory).await {
            Ok(None) => match is_buried(app, memory).await {
                Ok(false) => {
                    first.insert(memory.content_hash, place);
                }
                Ok(true) => *member = Member::Refused(WriteError::Tombstoned),
                Err(error) => *member = unavailable(&error),
            },
            Ok(Some(existing)) => {
                // To change a memory into what another one says is no use of that one.
                if batch.change.is_none() {
                    bump(app, &memory.partition, existing);
                }
                *member = Member::Refused(WriteError::Duplicate(existing));
            }
            Err(error) => *member = unavailable(&error),
        }
    }
}

fn unavailable(error: &StoreError) -> Member {
    tracing::warn!("exact dedup: {error}");
    Member::Refused(WriteError::StoreUnavailable)
}

/// Another active memory with the same text. What waits for review is compared when it is released.
async fn existing(app: &App, memory: &Memory) -> Result<Option<MemoryId>, StoreError> {
    if memory.status != Status::Active {
        return Ok(None);
    }
    app.store.duplicate_of(memory).await
}

/// Whether nobody asked for this text to be written, and somebody had it forgotten. An extractor may keep the full stop or leave it.
async fn is_buried(app: &App, memory: &Memory) -> Result<bool, StoreError> {
    if memory.source.kind != Source::CAPTURE {
        return Ok(false);
    }
    const STOPS: [char; 6] = ['.', '!', '?', '\u{3002}', '\u{ff01}', '\u{ff1f}'];
    let bare = memory.content.trim().trim_end_matches(STOPS);
    let stopped = ["", ".", "!", "\u{3002}"].map(|stop| content_hash(&format!("{bare}{stop}")));
    for hash in std::iter::once(memory.content_hash).chain(stopped) {
        if app.store.is_tombstoned(&memory.partition, hash).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A repeated write is a use of the memory. Telemetry, so it does not hold up the answer.
pub(super) fn bump(app: &App, partition: &PartitionKey, existing: MemoryId) {
    app.uses
        .note(std::iter::once((partition.clone(), existing)));
}

#[cfg(test)]
mod tests {
    use super::content_hash;

    #[test]
    fn case_spacing_composition_and_invisible_characters_do_not_make_another_text() {
        let first = content_hash("Zora likes owls.");
        for same in [
            " zora  LIKES owls. ",
            "Zora\tlikes\nowls.",
            "Zo\u{200b}ra likes owls.",
            "Zora likes owls\u{ff0e}",
        ] {
            assert_eq!(content_hash(same), first, "{same:?}");
        }
        assert_eq!(content_hash("Zo\u{eb}"), content_hash("Zoe\u{308}"));
        for other in [
            "Zora likes owls",
            "Zora likes owl s.",
            "Zora dislikes owls.",
        ] {
            assert_ne!(content_hash(other), first, "{other:?}");
        }
    }
}
