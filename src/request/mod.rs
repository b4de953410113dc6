//! THE REQUEST PATH.

pub mod context;
pub mod validation;
