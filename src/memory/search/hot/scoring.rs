//! The members of the hot set against a query.

use std::sync::Arc;

use jiff::Timestamp;

use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::memory::embedder::Calibration;

use super::super::columns::Columns;
use super::super::evidence::{self, Evidence};
use super::super::partition::Partition;
use super::super::pass::TermWeights;
use super::super::terms::Term;
use super::super::{Compared, Hit, Query, SearchError};
use super::members::Member;
use super::{Inline, refresh};

/// At most `limit` members that the query touches, best first.
pub(in crate::memory::search) fn hot_members(
    partitions: &[Arc<Partition>],
    query: &Query,
    now: Timestamp,
    limit: usize,
    inline: Inline,
) -> Result<Vec<Hit>, SearchError> {
    let weights = TermWeights::new(query, partitions, inline.deadline)?;
    let asked = Asked::new(&weights);
    let mut found: Vec<(f32, Hit)> = Vec::new();
    for partition in partitions {
        if partition.len() <= inline.rows {
            refresh(partition, now, inline.deadline)?;
        }
        partition.read(inline.deadline, |columns| {
            let compared = query
                .vector_for(partition.model())
                .filter(|c| c.vector.dimensions() == columns.dimensions());
            let masses = Masses::new(columns, &asked);
            let members = columns.hot.members.iter();
            let scored = members
                .filter(|m| {
                    let row = columns.row(m.row);
                    row.is_some_and(|row| row.is_valid(now.as_microsecond()))
                })
                .filter_map(|member| score(columns, member, compared, (&masses, &weights)));
            // Only those that stay become memories again.
            let scored = top(scored.collect(), limit);
            found.extend(
                scored
                    .iter()
                    .filter_map(|s| Some((s.log_odds, s.hit(columns, partition.key())?))),
            );
        })?;
    }
    found.sort_unstable_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then_with(|| a.1.memory.id.cmp(&b.1.memory.id))
    });
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, hit)| hit).collect())
}

/// The `limit` best of one partition.
fn top(mut scored: Vec<Scored<'_>>, limit: usize) -> Vec<Scored<'_>> {
    if scored.len() > limit {
        // Equal odds are told apart by the identifier, as between partitions.
        scored.select_nth_unstable_by(limit, |a, b| {
            b.log_odds
                .total_cmp(&a.log_odds)
                .then_with(|| a.id.cmp(&b.id))
        });
        scored.truncate(limit);
    }
    scored
}

/// The weight of the asked terms that each member contains.
enum Masses<'a> {
    /// Of every row, summed up from the lexicon of a partition with few.
    Rows(Vec<f32>),
    /// From the members' own terms.
    Members(&'a Asked<'a>),
}

impl<'a> Masses<'a> {
    fn new(columns: &Columns, asked: &'a Asked<'a>) -> Self {
        if !columns.lexicon.is_few() {
            return Self::Members(asked);
        }
        let mut masses = vec![0.0; columns.rows.len()];
        for (term, weight) in &asked.weights.terms {
            let postings = columns.lexicon.postings(*term);
            postings.each(0..postings.len(), |_, posting| {
                if let Some(mass) = masses.get_mut(posting.row as usize) {
                    *mass += weight;
                }
            });
        }
        Self::Rows(masses)
    }

    fn of(&self, member: &Member) -> f32 {
        match self {
            Self::Rows(masses) => masses.get(member.row as usize).copied().unwrap_or(0.0),
            Self::Members(asked) => member.terms.iter().map(|&term| asked.weight(term)).sum(),
        }
    }
}

/// The query's terms, ready for many short lists of terms to be compared with.
struct Asked<'a> {
    weights: &'a TermWeights,
    /// A bit for each term, by its hash: nearly every term that was not asked for is told by it.
    bits: [u64; 16],
}

impl<'a> Asked<'a> {
    fn new(weights: &'a TermWeights) -> Self {
        let mut asked = Self {
            weights,
            bits: [0; 16],
        };
        for (term, _) in &weights.terms {
            let (word, bit) = term.place();
            if let Some(word) = asked.bits.get_mut(word) {
                *word |= bit;
            }
        }
        asked
    }

    /// The weight of a term; 0 when it was not asked for.
    fn weight(&self, term: Term) -> f32 {
        let (word, bit) = term.place();
        if self.bits.get(word).is_none_or(|word| word & bit == 0) {
            return 0.0;
        }
        let mut terms = self.weights.terms.iter();
        terms
            .find(|(asked, _)| *asked == term)
            .map_or(0.0, |(_, weight)| *weight)
    }
}

/// A member that the query touches.
#[derive(Debug)]
struct Scored<'a> {
    log_odds: f32,
    id: MemoryId,
    member: &'a Member,
    similarity: f32,
    coverage: f32,
}

impl Scored<'_> {
    fn hit(&self, columns: &Columns, key: &PartitionKey) -> Option<Hit> {
        let row = self.member.row;
        let (columns, kept) = (columns.row(row)?, columns.kept(row)?);
        Some(Hit {
            memory: self.member.memory(columns, kept, key),
            similarity: self.similarity,
            lexical: self.coverage,
            coverage: self.coverage,
            relevance: evidence::alone(self.log_odds),
        })
    }
}

fn score<'a>(
    columns: &Columns,
    member: &'a Member,
    compared: Option<Compared<'_>>,
    (masses, weights): (&Masses<'_>, &TermWeights),
) -> Option<Scored<'a>> {
    let kept = columns.kept(member.row)?;
    let scale = columns.scale(member.row);
    let similarity = compared
        .filter(|_| scale > 0.0)
        .map(|c| (c.vector.dot(columns.vector(member.row)) * scale).clamp(0.0, 1.0));
    let mass = masses.of(member);
    let evidence = Evidence {
        similarity,
        coverage: weights.share(mass),
        mass,
        log_among: weights.log_documents,
        calibration: compared.map_or(Calibration::BUILT_IN, |c| c.calibration),
    };
    let (similarity, coverage) = (similarity.unwrap_or(0.0), evidence.coverage);
    let touched = similarity > 0.0 || coverage > 0.0;
    touched.then(|| Scored {
        log_odds: evidence.log_odds(),
        id: kept.id,
        member,
        similarity,
        coverage,
    })
}
