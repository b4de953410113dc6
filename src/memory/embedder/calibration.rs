//! What the cosines of a model mean. Models spread their cosines differently: 0.6 is everyday likeness for one and a paraphrase for
//! another, so thresholds belong to the model and travel with its vectors.

use crate::config::{EmbedderConfig, EmbedderKind, embedder};

/// The thresholds and weights of one embedder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The cosine from which two memories are candidates for saying the same, 0 to 1. A cosine alone never merges anything.
    pub near_duplicate: f32,
    /// The cosine that chance does not reach among one memory. Above it likeness counts without a common word.
    pub likeness: f32,
    /// How [`Self::likeness`] grows with the natural logarithm of the memories compared: the best of many unrelated texts is always
    /// somewhat alike.
    pub likeness_growth: f32,
    /// Log odds that one unit of cosine above the likeness adds.
    pub likeness_steepness: f32,
    /// Log odds of the fitted sum: what one unit of cosine adds.
    pub cosine: f32,
    /// What a whole match of the query's terms adds.
    pub coverage: f32,
    /// What the logarithm of the matching term weight adds.
    pub mass: f32,
    /// The constant of the fitted sum.
    pub bias: f32,
}

impl Calibration {
    /// The built-in model's: fitted by logistic regression on questions asked of the dialogue they are about, against the same questions
    /// asked of another one.
    pub const BUILT_IN: Self = Self {
        near_duplicate: 0.92,
        likeness: 0.60,
        likeness_growth: 0.04,
        likeness_steepness: 12.0,
        cosine: 2.67,
        coverage: 4.76,
        mass: 1.71,
        bias: -7.70,
    };

    /// That of all-MiniLM-L6-v2, whose anchors [`embedder::UNRELATED`] and [`embedder::RELATED`] are: fitted in the same way. Other models
    /// that were trained on sentence pairs are brought onto it.
    pub const SENTENCE_PAIRS: Self = Self {
        near_duplicate: 0.92,
        likeness: 0.52,
        likeness_growth: 0.065,
        likeness_steepness: 7.3,
        cosine: 10.67,
        coverage: 3.48,
        mass: 0.955,
        bias: -8.11,
    };

    /// What the cosines of the configured model mean.
    #[must_use]
    pub fn of(config: &EmbedderConfig) -> Self {
        let fit = match config.kind {
            EmbedderKind::BuiltIn => Self::BUILT_IN,
            EmbedderKind::Http | EmbedderKind::Onnx => Self::anchored(
                config.unrelated.unwrap_or(embedder::UNRELATED),
                config.related.unwrap_or(embedder::RELATED),
            ),
        };
        Self {
            near_duplicate: config.near_duplicate.unwrap_or(fit.near_duplicate),
            ..fit
        }
    }

    /// The calibration of a model of which two cosines are known: what unrelated texts reach on average, and what texts reach that say
    /// the same in other words. [`Self::SENTENCE_PAIRS`] is carried over along the line through both points.
    ///
    /// `unrelated` must be below `related`; the configuration holds it to that, and a pair that is not changes nothing.
    #[must_use]
    pub fn anchored(unrelated: f32, related: f32) -> Self {
        let fit = Self::SENTENCE_PAIRS;
        let distance = related - unrelated;
        let (slope, start) = if distance > 0.0 {
            let slope = (embedder::RELATED - embedder::UNRELATED) / distance;
            (slope, embedder::UNRELATED - slope * unrelated)
        } else {
            (1.0, 0.0)
        };
        Self {
            likeness: (fit.likeness - start) / slope,
            likeness_growth: fit.likeness_growth / slope,
            likeness_steepness: fit.likeness_steepness * slope,
            cosine: fit.cosine * slope,
            bias: fit.bias + fit.cosine * start,
            ..fit
        }
    }
}

impl Default for Calibration {
    fn default() -> Self {
        Self::BUILT_IN
    }
}

/// Pairs of sentences that say the same in other words; any two of different pairs have nothing to do with each other.
#[cfg(test)]
pub(super) mod probes {
    use crate::memory::embedder::Embedder;

    pub(in crate::memory::embedder) const PAIRS: [[&str; 2]; 16] = [
        [
            "She adopted a puppy from the shelter.",
            "The dog she took in came from an animal rescue.",
        ],
        [
            "The invoice has to be paid by the end of March.",
            "Payment of the bill is due before April begins.",
        ],
        [
            "He cannot eat anything with peanuts.",
            "Peanuts are off the menu for him because of an allergy.",
        ],
        [
            "The staging database runs on port 5433.",
            "Port 5433 is where the database of the staging system listens.",
        ],
        [
            "I prefer short answers without small talk.",
            "Please keep replies brief and skip the chatter.",
        ],
        [
            "Their wedding was held on a beach in Portugal.",
            "They got married by the sea in Portugal.",
        ],
        [
            "The heating in the office fails every winter.",
            "Each winter the office radiators stop working.",
        ],
        [
            "My grandmother taught me to bake bread.",
            "I learnt baking bread from my grandma.",
        ],
        [
            "Deployments are forbidden on Fridays.",
            "Nothing is released to production on a Friday.",
        ],
        [
            "He sold his car and bought a bicycle.",
            "He now rides a bike, having given up his automobile.",
        ],
        [
            "The museum is closed on Mondays.",
            "On Mondays you cannot visit the museum.",
        ],
        [
            "She is training for her first marathon.",
            "She prepares to run a marathon for the first time.",
        ],
        [
            "The contract ends after two years.",
            "The agreement has a term of twenty-four months.",
        ],
        [
            "Our cat is afraid of thunder.",
            "Thunderstorms frighten the cat we have.",
        ],
        [
            "The recipe needs three eggs and a cup of flour.",
            "For that dish you take a cup of flour and three eggs.",
        ],
        [
            "He moved to Berlin to study physics.",
            "Studying physics was the reason he went to live in Berlin.",
        ],
    ];

    /// The mean cosine of unrelated texts and of paraphrases.
    pub(in crate::memory::embedder) async fn measure(model: &dyn Embedder) -> (f32, f32) {
        let texts: Vec<&str> = PAIRS.iter().flatten().copied().collect();
        let vectors = model.embed(&texts).await.expect("vectors");
        let cosine = |a: usize, b: usize| -> f32 {
            vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum()
        };
        let mean = |pairs: Vec<(usize, usize)>| {
            pairs.iter().map(|&(a, b)| cosine(a, b)).sum::<f32>() / pairs.len() as f32
        };
        let all = (0..texts.len()).flat_map(|a| (a + 1..texts.len()).map(move |b| (a, b)));
        let (related, unrelated): (Vec<_>, Vec<_>) = all.partition(|(a, b)| a / 2 == b / 2);
        (mean(unrelated), mean(related))
    }
}

#[cfg(test)]
mod tests {
    use super::{Calibration, probes};
    use crate::config::embedder::{RELATED, UNRELATED};
    use crate::memory::embedder::StaticMiniLm;

    #[tokio::test]
    async fn the_built_in_model_has_the_anchors_that_the_readme_names() {
        let (unrelated, related) = probes::measure(&*StaticMiniLm::shared()).await;
        assert!((unrelated - 0.32).abs() < 0.01, "{unrelated}");
        assert!((related - 0.73).abs() < 0.01, "{related}");
    }

    #[test]
    fn a_model_with_the_same_anchors_has_the_same_thresholds() {
        let same = Calibration::anchored(UNRELATED, RELATED);
        let fit = Calibration::SENTENCE_PAIRS;
        assert!((same.likeness - fit.likeness).abs() < 1e-5);
        assert!((same.cosine - fit.cosine).abs() < 1e-4);
        assert!((same.bias - fit.bias).abs() < 1e-5);
    }

    #[test]
    fn thresholds_follow_a_model_whose_cosines_are_crowded_together() {
        let crowded = Calibration::anchored(0.70, 0.90);
        assert!(crowded.likeness > 0.80 && crowded.likeness < 0.90);
        assert!(crowded.likeness_steepness > 20.0);
        // The same place between the anchors is worth the same.
        let middle = |c: &Calibration, low: f32, high: f32| c.cosine * (low + high) / 2.0 + c.bias;
        let (a, b) = (
            middle(&crowded, 0.70, 0.90),
            middle(&Calibration::SENTENCE_PAIRS, UNRELATED, RELATED),
        );
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }

    #[test]
    fn anchors_that_make_no_line_are_not_followed() {
        let kept = Calibration::anchored(0.5, 0.5);
        assert_eq!(kept, Calibration::SENTENCE_PAIRS);
    }
}
