//! (stage file)

/// The token budget of one request (contract, section 8).
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Budget {
    /// The model's window.
    pub context_window: u32,
    /// Kept for the answer.
    pub response_reserve: u32,
    /// Kept for counting errors.
    pub safety_buffer: u32,
    /// The directive.
    pub directive: u32,
    /// The client's messages.
    pub messages: u32,
    /// The client's tool schemas.
    pub tool_schemas: u32,
    /// Wrappers, joins and the safety sentence.
    pub formatter_overhead: u32,
    /// What is left for memories.
    pub usable: u32,
    /// Whether less than 256 tokens are left.
    pub constrained: bool,
}
