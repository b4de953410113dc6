//! How far a match speaks for itself, on a scale that means the same for every query and partition.
//!
//! Fitted by logistic regression: questions asked of the dialogue they are about, against the same questions asked of another one, names
//! masked. The cosine of a static embedding says little there, for any two everyday texts are somewhat alike; rare words that match say
//! most.

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
}

/// The cosine that chance does not reach among one memory, and how it grows with the logarithm of their number: the best of many
/// unrelated texts is always somewhat alike. Above it likeness counts without a common word.
const LIKENESS: f32 = 0.60;
const LIKENESS_GROWTH: f32 = 0.04;
const LIKENESS_STEEPNESS: f32 = 12.0;

/// Flattens the odds, so that relevance stays graded where the fit is nearly certain.
const FLATTENING: f32 = 0.4;

impl Evidence {
    /// The strongest of each feature.
    pub(super) fn best_of(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |best, next| Self {
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
                let likeness =
                    LIKENESS_STEEPNESS * (similarity - LIKENESS - LIKENESS_GROWTH * self.log_among);
                likeness
                    .max(2.67 * similarity + 4.76 * self.coverage + 1.71 * self.mass.ln_1p() - 7.70)
            }
            None => 4.92 * self.coverage + 1.77 * self.mass.ln_1p() - 6.05,
        }
    }

    /// The belief in a whole recall, 0 to 1.
    pub(super) fn belief(&self) -> f32 {
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
    use super::{Evidence, alone};

    #[test]
    fn rare_words_that_match_are_believed_and_a_vague_likeness_is_not() {
        let note = Evidence {
            similarity: Some(0.7),
            coverage: 0.6,
            mass: 8.0,
            log_among: 6.2,
        };
        let vague = Evidence {
            similarity: Some(0.6),
            coverage: 0.1,
            mass: 1.0,
            log_among: 6.2,
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
