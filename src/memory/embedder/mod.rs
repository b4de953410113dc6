//! Text to vector. One trait; the built-in model needs no file, no runtime and no network.

pub mod static_minilm;
mod wordpiece;

use std::fmt::Debug;

use async_trait::async_trait;

pub use static_minilm::StaticMiniLm;

/// The text could not be embedded.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the text could not be embedded: {0}")]
pub struct EmbedError(pub &'static str);

/// Turns text into unit-length vectors.
#[async_trait]
pub trait Embedder: Send + Sync + Debug {
    /// Stable name with version and dimension; vectors of two names are never compared.
    fn model(&self) -> &str;

    /// Vectors of `texts`, in order. A text without any known word gets the zero vector.
    ///
    /// # Errors
    /// When the model cannot be asked; nothing may be stored then.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;
}
