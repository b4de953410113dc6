//! Text to vector. One trait; the built-in model needs no file, no runtime and no network, and stands in wherever another one has not
//! embedded everything yet.

mod calibration;
pub mod static_minilm;
mod http;
#[cfg(feature = "onnx")]
mod onnx;
mod wordpiece;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::config::{EmbedderConfig, EmbedderKind};
use crate::providers::Client;
use crate::telemetry::BreakerFigures;

pub use self::http::HttpEmbedder;
pub use calibration::Calibration;
#[cfg(feature = "onnx")]
pub use onnx::OnnxEmbedder;
pub use static_minilm::StaticMiniLm;

/// The text could not be embedded. The reason is one of a fixed set: never a text, a URL or what a server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text could not be embedded: {0}")]
pub struct EmbedError(pub &'static str);

impl EmbedError {
    /// The text itself is not taken: too long, perhaps. Asking again cannot help.
    pub const REFUSED: Self = Self("the embedder refuses the text");
    /// No answer in time.
    pub const TIMEOUT: Self = Self("no answer in time");
    /// It failed so often that it is left alone for a while.
    pub const RESTING: Self = Self("the embedder is left alone after failures");
}

/// Turns text into unit-length vectors.
#[async_trait]
pub trait Embedder: Send + Sync + Debug {
    /// Stable name with version and dimension; vectors of two names are never compared.
    fn model(&self) -> &str;

    /// What its cosines mean.
    fn calibration(&self) -> Calibration {
        Calibration::BUILT_IN
    }

    /// What the breaker before it counts, if it has one.
    fn breaker(&self) -> Option<&BreakerFigures> {
        None
    }

    /// How many documents [`Self::embed`] is best given at once. Where embedding is CPU work on a thread that requests run on, eight texts
    /// of the greatest length are a fraction of what a whole batch of memories may be.
    fn batch(&self) -> usize {
        8
    }

    /// Vectors of `texts`, in order, for storing. It may take long and try again. A text without any known word gets the zero vector.
    ///
    /// # Errors
    /// When the model cannot be asked; nothing may be stored then. [`EmbedError::REFUSED`] when one of the texts is not taken.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// The vector of one question of the request path, asked for once and no longer than `until`.
    ///
    /// # Errors
    /// When there is none in time: the search goes on by words.
    async fn embed_query(&self, text: &str, until: Instant) -> Result<Vec<f32>, EmbedError> {
        let none = EmbedError("the embedder answered with no vector");
        tokio::time::timeout_at(until, self.embed(&[text]))
            .await
            .map_err(|_| EmbedError::TIMEOUT)??
            .pop()
            .ok_or(none)
    }
}

/// The embedder that the configuration names.
///
/// # Errors
/// When it cannot be made, with the key that is wrong.
pub fn configured(config: &EmbedderConfig, client: &Client) -> Result<Arc<dyn Embedder>, String> {
    match config.kind {
        EmbedderKind::BuiltIn if config.near_duplicate.is_none() => Ok(StaticMiniLm::shared()),
        EmbedderKind::BuiltIn => Ok(Arc::new(
            StaticMiniLm::new().calibrated(Calibration::of(config)),
        )),
        EmbedderKind::Http => Ok(Arc::new(HttpEmbedder::new(config, client.clone())?)),
        #[cfg(feature = "onnx")]
        EmbedderKind::Onnx => Ok(Arc::new(OnnxEmbedder::load(config)?)),
        #[cfg(not(feature = "onnx"))]
        EmbedderKind::Onnx => Err(
            "embedder.kind: this binary is built without the onnx feature; build it with --features onnx"
                .to_owned(),
        ),
    }
}

/// Brings a vector to unit length.
///
/// # Errors
/// When it has no direction: zero, or a number that is not finite.
fn normalise(mut vector: Vec<f32>) -> Result<Vec<f32>, EmbedError> {
    // In f64: the squares of large components leave the range of f32.
    let norm = vector
        .iter()
        .map(|&x| f64::from(x).powi(2))
        .sum::<f64>()
        .sqrt();
    if !norm.is_finite() || norm <= 0.0 {
        return Err(EmbedError(
            "the embedder answered with a vector that has no direction",
        ));
    }
    for x in &mut vector {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a component of a unit vector"
        )]
        let scaled = (f64::from(*x) / norm) as f32;
        *x = scaled;
    }
    Ok(vector)
}
