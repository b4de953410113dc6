//! IBEX: an OpenAI-compatible reverse proxy that gives agents memory.
//!
//! Two folders are the two paths of the product; each `mod.rs` lists its stages in order and holds no other logic.
//!
//! ```text
//! request/        one chat request, from the first header to the last byte of the answer
//!   body limit -> bearer token -> agent binding -> policy snapshot -> request rate -> read and validate
//!     -> token rate -> directive and session -> context assembly -> provider handoff -> response relay
//!
//! memory/write/   one memory, from the body to the row
//!   validate -> redact pii -> exact dedup -> embed -> near dedup -> conflict -> persist -> after-commit effects
//! ```
//!
//! Everything else is a service that stands outside the paths. The modules below are in reading order; `ARCHITECTURE.md` walks one
//! request through them and says what always holds.

pub mod ids;
pub mod seams;
pub mod error;
pub mod config;
pub mod request;
pub mod openai;
pub mod auth;
pub mod policy;
pub mod limits;
pub mod providers;
pub mod memory;
pub mod session;
pub mod store;
pub mod tokens;
pub mod server;
pub mod app;
mod breaker;
pub mod tasks;
pub mod telemetry;
pub mod console;
pub mod cli;

// Tests that the library shares with the integration tests name it from outside.
#[cfg(test)]
extern crate self as ibex;
