//! Ranks what the branches found: takes hits, yields each candidate with its score, its value to the packer and, where it may not be
//! injected, the reason. Pure: no clock, no store.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use jiff::Timestamp;

use crate::config::{ContextConfig, ScoreSchema, Switch};
use crate::ids::MemoryId;
use crate::memory::Memory;
use crate::memory::search::{Hit, standing};

use super::plan::{Components, Exclusion};

/// Shares of the `interim` score (contract, section 9).
const INTERIM_SIMILARITY: f32 = 0.85;
const INTERIM_CONFIDENCE: f32 = 0.15;

/// How candidates are judged.
#[derive(Debug, Clone, Copy)]
pub struct RankSettings {
    /// Whether the gate decides what is worth injecting.
    pub gate: bool,
    /// Least relevance of a candidate.
    pub floor: f32,
    /// The score's formula.
    pub schema: ScoreSchema,
}

impl RankSettings {
    /// The settings of `[context]`.
    #[must_use]
    pub fn new(config: &ContextConfig) -> Self {
        Self { gate: config.recall_gate == Switch::On, floor: config.relevance_floor, schema: config.score_schema }
    }
}

/// A candidate with its score.
#[derive(Debug, Clone)]
pub struct Ranked {
    /// The memory.
    pub memory: Arc<Memory>,
    /// What orders it.
    pub score: f32,
    /// The score's parts.
    pub components: Components,
    /// What it is worth to the packer: steep, so that many weak items never outweigh a strong one.
    pub value: f32,
    /// Why it may not be injected.
    pub excluded: Option<Exclusion>,
}

/// Scores `hits` (hot before cold), best first. Candidates that may not be injected stay in the list, with the reason.
#[must_use]
pub fn rank(hits: Vec<Hit>, now: Timestamp, settings: &RankSettings) -> Vec<Ranked> {
    let hits = merged(hits);
    let gate = Gate::over(&hits);
    let mut ranked: Vec<Ranked> = hits.into_iter().map(|hit| judge(hit, now, settings, &gate)).collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.memory.id.cmp(&b.memory.id)));
    exclude_repeats(&mut ranked);
    set_values(&mut ranked);
    ranked
}

/// One hit for each memory: the one with the best relevance.
fn merged(hits: Vec<Hit>) -> Vec<Hit> {
    let mut places: HashMap<MemoryId, usize, RandomState> = HashMap::with_capacity_and_hasher(hits.len(), RandomState::default());
    let mut kept: Vec<Hit> = Vec::with_capacity(hits.len());
    for hit in hits {
        let place = *places.entry(hit.memory.id).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(known) if known.relevance < hit.relevance => *known = hit,
            Some(_) => {}
            None => kept.push(hit),
        }
    }
    kept
}

fn judge(hit: Hit, now: Timestamp, settings: &RankSettings, gate: &Gate) -> Ranked {
    let components = Components {
        relevance: hit.relevance,
        recency: standing::recency(&hit.memory, now),
        usefulness: standing::usefulness(&hit.memory),
        confidence: hit.memory.confidence.clamp(0.0, 1.0),
        frequency: standing::frequency(&hit.memory),
    };
    let score = match settings.schema {
        ScoreSchema::Composite => composite(&components),
        ScoreSchema::Interim => INTERIM_SIMILARITY * hit.similarity + INTERIM_CONFIDENCE * components.confidence,
    };
    let excluded = if !hit.memory.is_current(now) {
        Some(Exclusion::Filter)
    } else if hit.relevance < settings.floor {
        Some(Exclusion::Floor)
    } else if settings.gate && !gate.admits(&hit) {
        Some(Exclusion::Gate)
    } else {
        None
    };
    Ranked { value: 0.0, memory: hit.memory, score, components, excluded }
}

fn composite(components: &Components) -> f32 {
    standing::RELEVANCE_SHARE * components.relevance
        + standing::RECENCY_SHARE * components.recency
        + standing::USEFULNESS_SHARE * components.usefulness
        + standing::CONFIDENCE_SHARE * components.confidence
        + standing::FREQUENCY_SHARE * components.frequency
}

/// Steepness of the packer's value: a twentieth of score less is worth a four-hundredth. A flatter value lets many short weak items buy
/// out a strong one; this one keeps packing within a point of filling by rank.
const STEEPNESS: f32 = 120.0;

/// Gives every candidate its value, measured from the best score so that the greatest is 1.
fn set_values(ranked: &mut [Ranked]) {
    let best = ranked.iter().filter(|candidate| candidate.excluded.is_none()).map(|candidate| candidate.score).fold(0.0, f32::max);
    for candidate in ranked {
        candidate.value = (STEEPNESS * (candidate.score - best)).clamp(-80.0, 0.0).exp();
    }
}

/// Excludes candidates that say what a better one says: the same content, or the same words.
fn exclude_repeats(ranked: &mut [Ranked]) {
    let mut hashes: HashSet<[u8; 32], RandomState> = HashSet::default();
    let mut texts: HashSet<u64, RandomState> = HashSet::default();
    let hasher = RandomState::default();
    for candidate in ranked.iter_mut().filter(|candidate| candidate.excluded.is_none()) {
        let new_hash = hashes.insert(candidate.memory.content_hash);
        let new_text = texts.insert(word_hash(&candidate.memory.content, &hasher));
        if !(new_hash && new_text) {
            candidate.excluded = Some(Exclusion::Duplicate);
        }
    }
}

/// A hash of the words in lower case without the punctuation around them: what is left of a text when only its layout may differ.
fn word_hash(text: &str, hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    for word in text.split_whitespace() {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation() && !matches!(c, '-' | '+' | '$' | '#' | '%' | '@'));
        if !word.is_empty() {
            word.chars().flat_map(char::to_lowercase).for_each(|c| state.write_u32(c.into()));
            state.write_u32(u32::from(' '));
        }
    }
    state.finish()
}

/// The relevance gate: whether anything that was found answers the query, and how much weaker than the best an item may be.
#[derive(Debug)]
struct Gate {
    open: bool,
    least: f32,
}

impl Gate {
    fn over(hits: &[Hit]) -> Self {
        let best = hits.iter().map(|hit| hit.relevance).fold(0.0, f32::max);
        Self { open: best >= GATE_OPENS_AT, least: best * GATE_SHARE }
    }

    fn admits(&self, hit: &Hit) -> bool {
        self.open && hit.relevance >= self.least
    }
}

/// Least relevance of the best hit. Relevance is calibrated by the search; at this point about a sixth of unrelated questions pass.
const GATE_OPENS_AT: f32 = 0.607;
/// Least relevance of an item, as a share of the best hit's: a turn gets a handful of memories, not all that resemble it.
const GATE_SHARE: f32 = 0.68;

#[cfg(test)]
mod tests {}
