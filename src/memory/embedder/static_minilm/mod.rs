//! The built-in model: a static table of 256-dimensional word-piece vectors, distilled from all-MiniLM-L6-v2 (Apache-2.0; the licence
//! stands beside the table) and weighted by word frequency.
//!
//! The table is 30,522 little-endian `f32` row scales followed by as many rows of 256 signed bytes. A text's vector is the sum of
//! scale x row over its pieces, brought to unit length. The table is used where it lies in the binary; nothing is copied.

use std::fmt;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use pulp::{Arch, Simd, WithSimd};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::wordpiece::WordPiece;
use super::{Calibration, EmbedError, Embedder};

/// Dimensions of a vector.
pub const DIMENSIONS: usize = 256;

/// Words of a query that are embedded: enough for any question, and a bound on the time a pasted document can take.
pub const QUERY_WORDS: usize = 64;

/// Its name beside every vector.
pub const MODEL: &str = "static-minilm-256/1";
const ROWS: usize = 30_522;
const SCALE_BYTES: usize = size_of::<f32>();

static TABLE: &[u8; ROWS * (SCALE_BYTES + DIMENSIONS)] = include_bytes!("static_minilm_256_i8.bin");
static VOCABULARY: &str = include_str!("vocab.txt");

/// The built-in embedder.
pub struct StaticMiniLm {
    tokenizer: WordPiece,
    calibration: Calibration,
}

impl StaticMiniLm {
    /// Reads the vocabulary (a few milliseconds); make one and share it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tokenizer: WordPiece::new(VOCABULARY),
            calibration: Calibration::BUILT_IN,
        }
    }

    /// The same model with other thresholds.
    #[must_use]
    pub fn calibrated(self, calibration: Calibration) -> Self {
        Self {
            calibration,
            ..self
        }
    }

    /// The process's own, made on first use. The table lies in the binary, so there is no reason for a second one.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<StaticMiniLm>> =
            LazyLock::new(|| Arc::new(StaticMiniLm::new()));
        Arc::clone(&SHARED)
    }

    /// The vector of a document: all of it. A text without any known word gets the zero vector.
    #[must_use]
    pub fn embed_document(&self, text: &str) -> Vec<f32> {
        self.vector(text, usize::MAX)
    }

    /// The vector of a query: at most its first [`QUERY_WORDS`] words. Synchronous, for the request path: microseconds.
    #[must_use]
    pub fn embed_one(&self, text: &str) -> Vec<f32> {
        self.vector(text, QUERY_WORDS)
    }

    fn vector(&self, text: &str, max_words: usize) -> Vec<f32> {
        let mut ids = SmallVec::<[u32; 128]>::new();
        self.tokenizer.ids(text, max_words, |id| ids.push(id));
        Arch::new().dispatch(Sum { ids: &ids })
    }
}

/// The sum over pieces, brought to unit length; a type, so that the compiler puts it inside the wide-instruction function.
struct Sum<'a> {
    ids: &'a [u32],
}

impl WithSimd for Sum<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<f32> {
        let mut sum = [0f32; DIMENSIONS];
        for &id in self.ids {
            let Some((scale, row)) = row(id) else {
                continue;
            };
            for (sum, &byte) in sum.iter_mut().zip(row) {
                *sum += scale * f32::from(byte.cast_signed());
            }
        }
        let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
        if norm > 0.0 {
            sum.iter_mut().for_each(|x| *x /= norm);
        }
        sum.to_vec()
    }
}

/// The scale and the bytes of one piece. Ids come from the vocabulary, so they are inside the table; anything else adds nothing.
#[inline(always)]
fn row(id: u32) -> Option<(f32, &'static [u8; DIMENSIONS])> {
    let (scales, rows) = TABLE.split_at_checked(ROWS * SCALE_BYTES)?;
    let scale = scales.as_chunks::<SCALE_BYTES>().0.get(id as usize)?;
    let row = rows.as_chunks::<DIMENSIONS>().0.get(id as usize)?;
    Some((f32::from_le_bytes(*scale), row))
}

impl Default for StaticMiniLm {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StaticMiniLm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticMiniLm")
            .field("model", &MODEL)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Embedder for StaticMiniLm {
    fn model(&self) -> &str {
        MODEL
    }

    fn calibration(&self) -> Calibration {
        self.calibration
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| self.embed_document(text)).collect())
    }

    async fn embed_query(&self, text: &str, _: Instant) -> Result<Vec<f32>, EmbedError> {
        Ok(self.embed_one(text))
    }
}

#[cfg(test)]
mod tests {
    use super::{DIMENSIONS, ROWS, StaticMiniLm, VOCABULARY};
    use crate::memory::embedder::Embedder;

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn the_vocabulary_fits_the_table() {
        assert_eq!(VOCABULARY.lines().count(), ROWS);
    }

    #[test]
    fn related_texts_are_nearer_than_unrelated_ones() {
        let model = StaticMiniLm::new();
        let query = model.embed_one("Which puppy did she adopt?");
        let near = model.embed_one("The dog came from an animal shelter.");
        let far = model.embed_one("The invoice is due at the end of the quarter.");
        assert_eq!(query.len(), DIMENSIONS);
        assert!((cosine(&query, &query) - 1.0).abs() < 1e-5);
        assert!(cosine(&query, &near) > cosine(&query, &far) + 0.1);
    }

    #[test]
    fn a_text_without_words_is_the_zero_vector() {
        assert_eq!(StaticMiniLm::new().embed_one(" \n"), vec![0.0; DIMENSIONS]);
    }

    #[test]
    fn a_query_is_bounded_and_a_document_is_not() {
        let model = StaticMiniLm::new();
        let long = format!("{} zebra", "tea ".repeat(super::QUERY_WORDS));
        assert_eq!(
            model.embed_one(&long),
            model.embed_one(&"tea ".repeat(super::QUERY_WORDS))
        );
        assert_ne!(model.vector(&long, usize::MAX), model.embed_one(&long));
    }

    #[tokio::test]
    async fn a_batch_keeps_its_order() {
        let model = StaticMiniLm::new();
        let vectors = model.embed(&["one", "two"]).await.unwrap();
        assert_eq!(vectors, [model.embed_one("one"), model.embed_one("two")]);
    }
}
