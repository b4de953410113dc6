//! `[embedder]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::AuthStyle;

/// What turns text into vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbedderKind {
    /// The table inside the binary: microseconds, no file, no network.
    #[default]
    BuiltIn,
    /// An OpenAI-compatible `/embeddings`.
    Http,
    /// A sentence transformer in an ONNX file, run in process.
    Onnx,
}

/// The embedder. Every vector is stored with the name of its model; a change is followed by embedding everything again.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmbedderConfig {
    /// `built-in`, `http` or `onnx`.
    pub kind: EmbedderKind,
    /// `http`: base URL, with the rules of a provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// `http`: the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// `http`: a file with the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// `http`: how the key is sent; without a key nothing is.
    pub auth: AuthStyle,
    /// `http`: the model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `http`: asked for in the request, and held to in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<u32>,
    /// `http`: texts a request.
    pub batch: usize,
    /// `http`: characters of a text that are sent; what is beyond does not count.
    pub max_chars: usize,
    /// `http`: time for a question's vector on the request path, in milliseconds.
    pub timeout_ms: u64,
    /// `http`: time for a batch of documents, a second try included, in milliseconds.
    pub document_timeout_ms: u64,
    /// `http` and `onnx`: vectors of questions that are kept.
    pub cache_entries: u64,
    /// `onnx`: the model file; `vocab.txt` stands beside it.
    pub path: PathBuf,
    /// The cosine from which two memories are candidates for saying the same; unset, 0.92.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_duplicate: Option<f32>,
    /// `http` and `onnx`: the cosine that unrelated texts reach on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unrelated: Option<f32>,
    /// `http` and `onnx`: the cosine of texts that say the same in other words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<f32>,
}

impl Default for EmbedderConfig {
    fn default() -> Self {
        Self {
            kind: EmbedderKind::default(),
            base_url: None,
            api_key: None,
            api_key_file: None,
            auth: AuthStyle::default(),
            model: None,
            dimensions: None,
            batch: 64,
            max_chars: 8_000,
            timeout_ms: 20,
            document_timeout_ms: 30_000,
            cache_entries: 4_096,
            path: PathBuf::from("models/minilm_int8.onnx"),
            near_duplicate: None,
            unrelated: None,
            related: None,
        }
    }
}

impl std::fmt::Debug for EmbedderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbedderConfig")
            .field("kind", &self.kind)
            .field("model", &self.model)
            .field("api_key", &self.api_key.as_ref().map(|_| "<set>"))
            .finish_non_exhaustive()
    }
}

/// Anchors of a model that is not measured: those of all-MiniLM-L6-v2 over the probe sentences. Most models that were trained on
/// sentence pairs lie near them.
pub const UNRELATED: f32 = 0.06;
/// Its cosine of texts that say the same in other words.
pub const RELATED: f32 = 0.74;
