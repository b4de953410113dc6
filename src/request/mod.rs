//! THE REQUEST PATH.

pub mod bearer_token;
pub mod agent_binding;
pub mod context;
pub mod validation;
