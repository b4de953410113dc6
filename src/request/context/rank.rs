//! Ranks what the branches found: takes hits, yields each candidate with its score, its value to the packer and, where it may not be
//! injected, the reason. Pure: no clock, no store.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use jiff::Timestamp;
use serde::Deserialize;

use crate::config::{ContextConfig, ScoreSchema, Switch};
use crate::ids::MemoryId;
use crate::memory::Memory;
use crate::memory::search::{Hit, standing};

use super::plan::{Components, Exclusion};
use super::said::Said;

/// Shares of the `interim` score (contract, section 9).
const INTERIM_SIMILARITY: f32 = 0.85;
const INTERIM_CONFIDENCE: f32 = 0.15;

/// How candidates are judged.
#[derive(Debug, Clone)]
pub struct RankSettings {
    /// Whether the gate decides what is worth injecting.
    pub gate: bool,
    /// Least relevance of a candidate.
    pub floor: f32,
    /// The score's formula.
    pub schema: ScoreSchema,
    /// What each component counts for.
    pub shares: Shares,
    /// Memories that the conversation carries already.
    pub carried: Vec<MemoryId>,
}

/// What each component of the composite score counts for; the five sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    /// Of the match with the question.
    pub relevance: f32,
    /// Of age.
    pub recency: f32,
    /// Of votes.
    pub usefulness: f32,
    /// Of the writer's confidence.
    pub confidence: f32,
    /// Of uses.
    pub frequency: f32,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            relevance: standing::RELEVANCE_SHARE,
            recency: standing::RECENCY_SHARE,
            usefulness: standing::USEFULNESS_SHARE,
            confidence: standing::CONFIDENCE_SHARE,
            frequency: standing::FREQUENCY_SHARE,
        }
    }
}

impl Shares {
    /// How far the sum may lie from 1: what is left of 1e-9 (contract, section 9) in numbers of seven digits.
    const TOLERANCE: f32 = 1e-6;

    /// Whether none is negative and all of them sum to 1.
    #[must_use]
    pub fn are_whole(&self) -> bool {
        let Self {
            relevance,
            recency,
            usefulness,
            confidence,
            frequency,
        } = *self;
        let all = [relevance, recency, usefulness, confidence, frequency];
        let sum: f32 = all.iter().sum();
        all.iter().all(|share| *share >= 0.0) && (sum - 1.0).abs() <= Self::TOLERANCE
    }

    fn of(&self, components: &Components) -> f32 {
        self.relevance * components.relevance
            + self.recency * components.recency
            + self.usefulness * components.usefulness
            + self.confidence * components.confidence
            + self.frequency * components.frequency
    }
}

impl RankSettings {
    /// The settings of `[context]`.
    #[must_use]
    pub fn new(config: &ContextConfig) -> Self {
        Self {
            gate: config.recall_gate == Switch::On,
            floor: config.relevance_floor,
            schema: config.score_schema,
            shares: Shares::default(),
            carried: Vec::new(),
        }
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
    let mut ranked: Vec<Ranked> = hits
        .into_iter()
        .map(|hit| judge(hit, now, settings, &gate))
        .collect();
    ranked.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| a.memory.id.cmp(&b.memory.id))
    });
    exclude_repeats(&mut ranked);
    set_values(&mut ranked);
    ranked
}

/// One hit for each memory: the one with the best relevance.
fn merged(hits: Vec<Hit>) -> Vec<Hit> {
    let mut places: HashMap<MemoryId, usize, RandomState> =
        HashMap::with_capacity_and_hasher(hits.len(), RandomState::default());
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
        ScoreSchema::Composite => settings.shares.of(&components),
        ScoreSchema::Interim => {
            INTERIM_SIMILARITY * hit.similarity + INTERIM_CONFIDENCE * components.confidence
        }
    };
    let excluded = if !hit.memory.is_current(now) {
        Some(Exclusion::Filter)
    } else if hit.relevance < settings.floor {
        Some(Exclusion::Floor)
    } else if settings.gate && !gate.admits(&hit) {
        Some(Exclusion::Gate)
    } else if settings.carried.contains(&hit.memory.id) {
        Some(Exclusion::AlreadyInContext)
    } else {
        None
    };
    Ranked {
        value: 0.0,
        memory: hit.memory,
        score,
        components,
        excluded,
    }
}

/// What a memory is worth whatever is asked, for one that no question was held against.
#[must_use]
pub fn standing_components(memory: &Memory, now: Timestamp) -> (f32, Components) {
    let components = Components {
        relevance: 0.0,
        recency: standing::recency(memory, now),
        usefulness: standing::usefulness(memory),
        confidence: memory.confidence.clamp(0.0, 1.0),
        frequency: standing::frequency(memory),
    };
    (Shares::default().of(&components), components)
}

/// Steepness of the packer's value: a twentieth of score less is worth a four-hundredth. A flatter value lets many short weak items buy
/// out a strong one; this one keeps packing within a point of filling by rank.
const STEEPNESS: f32 = 120.0;

/// Gives every candidate its value, measured from the best score so that the greatest is 1.
fn set_values(ranked: &mut [Ranked]) {
    let best = ranked
        .iter()
        .filter(|candidate| candidate.excluded.is_none())
        .map(|candidate| candidate.score)
        .fold(0.0, f32::max);
    for candidate in ranked {
        candidate.value = (STEEPNESS * (candidate.score - best))
            .clamp(-80.0, 0.0)
            .exp();
    }
}

/// Excludes candidates that say what a better one says.
fn exclude_repeats(ranked: &mut [Ranked]) {
    let mut said = Said::default();
    for candidate in ranked
        .iter_mut()
        .filter(|candidate| candidate.excluded.is_none())
    {
        if !said.is_news(&candidate.memory) {
            candidate.excluded = Some(Exclusion::Duplicate);
        }
    }
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
        Self {
            open: best >= GATE_OPENS_AT,
            least: best * GATE_SHARE,
        }
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
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{RankSettings, Ranked, Shares, rank};
    use crate::config::ScoreSchema;
    use crate::ids::{AgentId, MemoryId, OrgId};
    use crate::memory::search::Hit;
    use crate::memory::{Category, Label, Memory, PartitionKey, Source, Status};
    use crate::request::context::plan::Exclusion;
    use crate::tokens::TokenCounts;

    const OPEN: RankSettings = RankSettings {
        gate: false,
        floor: 0.15,
        schema: ScoreSchema::Composite,
        shares: SHARES,
        carried: Vec::new(),
    };
    const GATED: RankSettings = RankSettings {
        gate: true,
        floor: 0.15,
        schema: ScoreSchema::Composite,
        shares: SHARES,
        carried: Vec::new(),
    };
    const SHARES: Shares = Shares {
        relevance: 0.40,
        recency: 0.25,
        usefulness: 0.20,
        confidence: 0.10,
        frequency: 0.05,
    };

    #[test]
    fn shares_must_be_whole() {
        assert_eq!(SHARES, Shares::default());
        assert!(SHARES.are_whole());
        let only = Shares {
            relevance: 1.0,
            recency: 0.0,
            usefulness: 0.0,
            confidence: 0.0,
            frequency: 0.0,
        };
        assert!(only.are_whole());
        for wrong in [-0.1, 0.5, f32::NAN, f32::INFINITY] {
            assert!(
                !Shares {
                    recency: wrong,
                    ..only
                }
                .are_whole(),
                "{wrong}"
            );
        }
    }

    fn now() -> Timestamp {
        "2026-01-15T12:00:00Z".parse().unwrap()
    }

    fn memory(content: &str) -> Memory {
        let id = MemoryId::new();
        Memory {
            id,
            partition: PartitionKey {
                org: OrgId::new(),
                agent: AgentId::new(),
                user: None,
            },
            content: content.into(),
            labels: vec![Label {
                label: Category::Factual,
                confidence: 1.0,
            }],
            confidence: 0.8,
            valid_from: now(),
            valid_until: None,
            observed_at: None,
            source: Source::default(),
            metadata: None,
            pinned: false,
            status: Status::Active,
            revision: 1,
            text_revision: 0,
            supersedes: Box::default(),
            content_hash: [id.as_bytes().as_slice(), id.as_bytes().as_slice()]
                .concat()
                .try_into()
                .unwrap(),
            retrieval_count: 0,
            votes_useful: 0,
            votes_not_useful: 0,
            created_at: now(),
            updated_at: now(),
            embedding: None,
            tokens: TokenCounts::default(),
        }
    }

    fn hit(memory: Memory, relevance: f32) -> Hit {
        Hit {
            memory: Arc::new(memory),
            similarity: relevance,
            lexical: relevance,
            coverage: relevance,
            relevance,
        }
    }

    fn outcome(ranked: &[Ranked]) -> Vec<(&str, Option<Exclusion>)> {
        ranked
            .iter()
            .map(|candidate| (&*candidate.memory.content, candidate.excluded))
            .collect()
    }

    #[test]
    fn the_composite_has_the_contracts_shares_and_the_shortest_half_life() {
        let labels = [Category::Factual, Category::Episodic].map(|label| Label {
            label,
            confidence: 1.0,
        });
        let aged = now() - Duration::from_secs(14 * 86_400);
        let one = Memory {
            labels: labels.into(),
            valid_from: aged,
            votes_useful: 2,
            retrieval_count: 5,
            ..memory("a")
        };
        let ranked = rank(vec![hit(one, 0.9)], now(), &OPEN);
        let parts = ranked[0].components;
        assert!(
            (parts.recency - 0.5).abs() < 1e-4,
            "episodic halves in fourteen days"
        );
        assert_eq!(
            (parts.usefulness, parts.frequency, parts.confidence),
            (0.75, 0.5, 0.8)
        );
        assert!((ranked[0].score - (0.36 + 0.125 + 0.15 + 0.08 + 0.025)).abs() < 1e-4);
        let interim = rank(
            vec![hit(memory("a"), 0.6)],
            now(),
            &RankSettings {
                schema: ScoreSchema::Interim,
                ..OPEN
            },
        );
        assert!((interim[0].score - (0.85 * 0.6 + 0.15 * 0.8)).abs() < 1e-5);
    }

    #[test]
    fn every_exclusion_has_its_reason() {
        let ended = Memory {
            valid_until: Some(now()),
            ..memory("ended")
        };
        let hits = vec![
            hit(memory("Port 8080."), 0.9),
            hit(memory("weak"), 0.1),
            hit(ended, 0.8),
            hit(memory("port  8080"), 0.7),
            hit(memory("port 8081"), 0.65),
        ];
        let ranked = rank(hits, now(), &OPEN);
        let expected = [
            ("Port 8080.", None),
            ("ended", Some(Exclusion::Filter)),
            ("port  8080", Some(Exclusion::Duplicate)),
            ("port 8081", None),
            ("weak", Some(Exclusion::Floor)),
        ];
        assert_eq!(outcome(&ranked), expected);
    }

    #[test]
    fn the_gate_closes_on_weak_recalls_and_drops_what_trails_the_best() {
        let weak = vec![hit(memory("a"), 0.5), hit(memory("b"), 0.45)];
        assert!(
            rank(weak.clone(), now(), &GATED)
                .iter()
                .all(|candidate| candidate.excluded == Some(Exclusion::Gate))
        );
        assert!(
            rank(weak, now(), &OPEN)
                .iter()
                .all(|candidate| candidate.excluded.is_none())
        );
        let strong = rank(
            vec![
                hit(memory("a"), 0.8),
                hit(memory("b"), 0.7),
                hit(memory("c"), 0.3),
            ],
            now(),
            &GATED,
        );
        assert_eq!(
            outcome(&strong),
            [("a", None), ("b", None), ("c", Some(Exclusion::Gate))]
        );
    }

    #[test]
    fn a_memory_found_twice_counts_once_with_its_better_relevance() {
        let one = memory("a");
        let ranked = rank(vec![hit(one.clone(), 0.4), hit(one, 0.7)], now(), &OPEN);
        assert_eq!((ranked.len(), ranked[0].components.relevance), (1, 0.7));
    }

    #[test]
    fn ties_are_ordered_by_id_and_values_are_steep() {
        let (a, b) = (memory("a"), memory("b"));
        let first = a.id.min(b.id);
        for hits in [[a.clone(), b.clone()], [b, a]] {
            assert_eq!(
                rank(
                    hits.into_iter().map(|m| hit(m, 0.5)).collect(),
                    now(),
                    &OPEN
                )[0]
                .memory
                .id,
                first
            );
        }
        let ranked = rank(
            vec![hit(memory("strong"), 0.8), hit(memory("half"), 0.4)],
            now(),
            &OPEN,
        );
        assert!(ranked[0].value > 1_000.0 * ranked[1].value && ranked[1].value > 0.0);
    }
}
