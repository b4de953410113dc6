//! A stored lane, rendered again from identifiers and hashes.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::render::{Epoch, Pinned, Press};
use super::restore::Restore;
use crate::ids::MemoryId;
use crate::memory::Memory;
use crate::session::record::{LaneRecord, OpeningRecord, TurnRecord};
use crate::session::working_state::WorkingState;
use crate::session::{Opening, Outcome, StateDelta, Turn};
use crate::store::StoreError;

/// The memories of a stored lane.
pub(super) type Memories = HashMap<MemoryId, Memory, RandomState>;

impl Restore {
    /// The lane from these memories; nothing when it is not what was sent.
    pub(super) async fn rendered(
        &self,
        record: &LaneRecord,
        memories: &Memories,
        checked: i64,
    ) -> Result<Option<(Opening, Vec<(Turn, Outcome)>)>, StoreError> {
        let Some(opening) = self.opening_again(&record.opening, memories).await? else {
            return Ok(None);
        };
        let states = self.states_of(&record.turns).await?;
        let turns: Option<Vec<(Turn, Outcome)>> = record
            .turns
            .iter()
            .map(|turn| {
                let outcome = self.turn_again(turn, (memories, checked), &states)?;
                Some((place(turn), outcome))
            })
            .collect();
        Ok(turns.map(|turns| (opening, turns)))
    }

    async fn opening_again(
        &self,
        record: &OpeningRecord,
        memories: &Memories,
    ) -> Result<Option<Opening>, StoreError> {
        let directive = match record.directive {
            Some(version) => {
                let (org, agent) = (self.owner.org, self.owner.agent);
                let found = self
                    .app
                    .store
                    .directive_version(org, agent, version)
                    .await?;
                let Some(found) = found else {
                    return Ok(None);
                };
                Some(found)
            }
            None => None,
        };
        let snapshot: Vec<&Memory> = record
            .snapshot
            .iter()
            .filter_map(|id| memories.get(id))
            .collect();
        let pinned = directive.as_ref().map(|d| Pinned {
            version: d.version,
            text: &d.content,
            hidden: false,
        });
        let epoch = Epoch {
            number: record.epoch,
            nonce: record.nonce_epoch,
            reason: record.reason,
        };
        let press = self.press();
        let elements = press.together(&snapshot);
        let opening = press.opening(&self.owner, epoch, pinned, elements);
        // Without all of its memories it cannot hash to the same; what is left is what the next epoch has.
        let whole = snapshot.len() == record.snapshot.len();
        Ok((!whole || *opening.sha256() == record.sha256).then_some(opening))
    }

    fn turn_again(
        &self,
        record: &TurnRecord,
        (memories, checked): (&Memories, i64),
        states: &HashMap<u32, WorkingState, RandomState>,
    ) -> Option<Outcome> {
        let recalled: Vec<&Memory> = record
            .memories
            .iter()
            .filter_map(|id| memories.get(id))
            .collect();
        let press = self.press();
        let nonce = press.secret.nonce(&self.owner, record.nonce_epoch);
        let recall = press.recall(&nonce, &record.anchor, &recalled);
        let state: Option<StateDelta> = match record.state {
            None => None,
            Some((from, to)) => {
                let (before, after) = (states.get(&from)?, states.get(&to)?);
                press.state(&self.owner, record.nonce_epoch, (from, before), (to, after))
            }
        };
        let block = Press::block(&self.owner, record.nonce_epoch, checked, recall, state);
        let whole = recalled.len() == record.memories.len();
        match (block, record.digest) {
            (Some(block), Some(digest)) if whole && *block.digest() != digest => None,
            (Some(block), _) => Some(Outcome::Block(block)),
            (None, _) => Some(Outcome::Nothing),
        }
    }

    /// The versions of the working state that deltas lead from and to; 0 is the empty one.
    async fn states_of(
        &self,
        turns: &[TurnRecord],
    ) -> Result<HashMap<u32, WorkingState, RandomState>, StoreError> {
        let mut states = HashMap::default();
        states.insert(0, WorkingState::default());
        let wanted = turns.iter().filter_map(|t| t.state);
        for version in wanted.flat_map(|(from, to)| [from, to]) {
            if states.contains_key(&version) {
                continue;
            }
            let stored = self
                .app
                .store
                .working_state(&self.owner, Some(version))
                .await?;
            if let Some(state) = stored.and_then(|s| serde_json::from_str(&s.json).ok()) {
                states.insert(version, state);
            }
        }
        Ok(states)
    }
}

/// Where a stored turn stands: it has no place in a request.
const fn place(record: &TurnRecord) -> Turn {
    Turn {
        message: 0,
        chain: record.chain,
        anchor: record.anchor,
    }
}
