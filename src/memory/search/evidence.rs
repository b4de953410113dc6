//! How far a match speaks for itself, on a scale that means the same for every query and partition.
//!
//! Fitted by logistic regression: questions asked of the dialogue they are about, against the same questions asked of another one, names
//! masked. The cosine of a static embedding says little there, for any two everyday texts are somewhat alike; rare words that match say
//! most. What a cosine counts belongs to the embedder that made it.

use crate::memory::embedder::Calibration;

/// The raw features of a match.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// Cosine, 0 to 1; `None` where vectors could not be compared.
    pub(super) similarity: Option<f32>,
    /// Share of the query's term weight that matches.
    pub(super) coverage: f32,
    /// Term weight that matches, in natural units of information.
    pub(super) mass: f32,
    /// Natural logarithm of one more than the memories that were compared.
    pub(super) log_among: f32,
    /// What the cosine means.
    pub(super) calibration: Calibration,
}

/// Flattens the odds, so that relevance stays graded where the fit is nearly certain.
const FLATTENING: f32 = 0.4;

impl Evidence {
    /// The belief in a whole recall, 0 to 1: of the strongest of each feature. Cosines of two models are not compared, so each model's
    /// matches are judged for themselves, and the stronger judgement counts.
    pub(super) fn belief_of_all(all: impl Iterator<Item = Self> + Clone) -> f32 {
        let first = all.clone().next().unwrap_or_default().calibration;
        let (one, other) = (
            Self::best_of(all.clone().filter(|e| e.calibration == first)),
            Self::best_of(all.filter(|e| e.calibration != first)),
        );
        one.belief().max(other.belief())
    }

    /// The strongest of each feature of matches by one model.
    fn best_of(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |best, next| Self {
            calibration: next.calibration,
            similarity: best
                .similarity
                .into_iter()
                .chain(next.similarity)
                .reduce(f32::max),
            coverage: best.coverage.max(next.coverage),
            mass: best.mass.max(next.mass),
            log_among: best.log_among.max(next.log_among),
        })
    }

    /// Log odds that the query has an answer here; 0 lies near a fifth of unrelated queries.
    pub(super) fn log_odds(&self) -> f32 {
        match self.similarity {
            Some(similarity) => {
                let Calibration {
                    likeness,
                    likeness_growth,
                    likeness_steepness,
                    cosine,
                    coverage,
                    mass,
                    bias,
                    near_duplicate: _,
                } = self.calibration;
                let alike =
                    likeness_steepness * (similarity - likeness - likeness_growth * self.log_among);
                let sum = cosine * similarity
                    + coverage * self.coverage
                    + mass * self.mass.ln_1p()
                    + bias;
                alike.max(sum)
            }
            None => 4.92 * self.coverage + 1.77 * self.mass.ln_1p() - 6.05,
        }
    }

    /// The belief in this match, 0 to 1.
    fn belief(&self) -> f32 {
        belief(self.log_odds())
    }
}

fn belief(log_odds: f32) -> f32 {
    logistic(FLATTENING * (log_odds + 1.0))
}

/// The relevance of one memory that is judged alone, without a ranking around it: the belief, less where the odds are against it.
pub(super) fn alone(log_odds: f32) -> f32 {
    belief(log_odds) * logistic(log_odds)
}

fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::{Calibration, Evidence, alone};

    #[test]
    fn rare_words_that_match_are_believed_and_a_vague_likeness_is_not() {
        let note = Evidence {
            similarity: Some(0.7),
            coverage: 0.6,
            mass: 8.0,
            log_among: 6.2,
            calibration: Calibration::BUILT_IN,
        };
        let vague = Evidence {
            similarity: Some(0.6),
            coverage: 0.1,
            mass: 1.0,
            log_among: 6.2,
            calibration: Calibration::BUILT_IN,
        };
        assert!(note.belief() > 0.65 && alone(note.log_odds()) > 0.4);
        assert!(vague.belief() < 0.4 && alone(vague.log_odds()) < 0.15);
        assert!(
            Evidence {
                similarity: None,
                ..note
            }
            .belief()
                > 0.65
        );
    }

    #[test]
    fn a_strong_likeness_counts_among_few_and_not_among_many() {
        let alike = Evidence {
            similarity: Some(0.75),
            log_among: 2.4,
            ..Evidence::default()
        };
        assert!(alike.belief() > 0.6);
        assert!(
            Evidence {
                log_among: 6.9,
                ..alike
            }
            .belief()
                < 0.5
        );
    }

    #[test]
    fn nothing_in_common_is_below_any_floor() {
        assert!(
            Evidence {
                similarity: Some(0.0),
                ..Evidence::default()
            }
            .belief()
                < 0.15
        );
    }
}
