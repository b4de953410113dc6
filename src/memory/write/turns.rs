//! Turns: statements about the same are judged one after the other, so that the second of two writers sees what the first one said.
//!
//! The store's unique index sees to equal texts alone; that one statement replaces another one is found before the transaction. A turn lasts
//! from there until the index knows what was committed. Statements about different things do not wait for each other, and other processes
//! are not seen: their writes meet at the next statement about the same.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

use crate::ids::MemoryId;
use crate::memory::claims::SlotKey;
use crate::memory::{Memory, PartitionKey};

use super::Batch;
use super::conflict::{slot_of, takes_part};

/// What is waited for: the digest of a partition and what is spoken of in it.
type Subject = [u8; 32];

/// Who is at work on what.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<Subject, Arc<tokio::sync::Mutex<()>>>>);

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    subjects: Vec<Subject>,
    held: Vec<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut waiting = self.turns.0.lock();
        self.held.clear();
        for subject in &self.subjects {
            // The table's is the last one: nobody waits.
            if waiting
                .get(subject)
                .is_some_and(|own| Arc::strong_count(own) == 1)
            {
                waiting.remove(subject);
            }
        }
    }
}

impl Turns {
    /// A turn for everything that a batch states.
    pub(super) async fn of_statements(&self, batch: &mut Batch) -> Turn<'_> {
        let subjects = batch
            .going()
            .map(|candidate| &candidate.memory)
            .filter(|memory| takes_part(memory))
            .map(subject);
        self.take(subjects.collect()).await
    }

    /// A turn for changes of one memory.
    pub(super) async fn of_memory(&self, id: MemoryId) -> Turn<'_> {
        let digest = Sha256::new()
            .chain_update(b"memory")
            .chain_update(id.as_bytes());
        self.take(vec![digest.finalize().into()]).await
    }

    async fn take(&self, mut subjects: Vec<Subject>) -> Turn<'_> {
        // Everybody takes them in the same order: nobody waits for somebody who waits.
        subjects.sort_unstable();
        subjects.dedup();
        let mut turn = Turn {
            turns: self,
            held: Vec::with_capacity(subjects.len()),
            subjects: subjects.clone(),
        };
        for subject in subjects {
            let own = Arc::clone(self.0.lock().entry(subject).or_default());
            turn.held.push(own.lock_owned().await);
        }
        turn
    }
}

/// What a memory speaks of: its slot without qualifiers, or where the grammar finds none its bare words, which a restatement shares.
fn subject(memory: &Memory) -> Subject {
    let PartitionKey { org, agent, user } = &memory.partition;
    let mut digest = Sha256::new()
        .chain_update(org.as_bytes())
        .chain_update(agent.as_bytes())
        .chain_update(user.as_ref().map_or("", |user| user.as_str()))
        .chain_update([0]);
    match slot_of(memory) {
        Some(SlotKey(slot)) => digest.update(slot),
        None => {
            let words = memory.content.split(|c: char| !c.is_alphanumeric());
            for word in words.filter(|word| !word.is_empty()) {
                digest.update(word.to_lowercase());
                digest.update([0]);
            }
        }
    }
    digest.finalize().into()
}
