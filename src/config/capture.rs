//! `[capture]`.

use serde::{Deserialize, Serialize};

/// What becomes of conversations whose agent captures them (`ibex agent set-capture`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureConfig {
    /// The model that takes statements from a message, routed as a client's would be; empty = only what a user asks to be remembered.
    pub model: String,
    /// How long one answer of it may take, in milliseconds. Nobody waits for it.
    pub timeout_ms: u64,
    /// Turns that wait at once; beyond it new ones are dropped.
    pub queue: usize,
    /// Turns that are worked on at once.
    pub workers: usize,
    /// Attempts before a turn is given up.
    pub attempts: u32,
    /// Longest message that is kept for it, in bytes; a longer one is a document and is not captured.
    pub max_message_bytes: usize,
}

impl Default for CaptureConfig {
    fn default() -> Self {
        Self {
            model: String::new(),
            timeout_ms: 30_000,
            queue: 1_000,
            workers: 2,
            attempts: 3,
            max_message_bytes: 32_768,
        }
    }
}
