//! Harnesses of the fuzz targets: one function a target, with the properties that hold for any input. `README.md` says what they are.
//!
//! The targets in `fuzz_targets/` run them on what the fuzzer makes up, and `tests/ibex/fuzz.rs` on the kept corpus with the stable compiler.

mod input;
mod reference;
mod service;
mod wire;
pub mod batch_import;
pub mod jwt;
pub mod memory_markup;
pub mod request_body;
pub mod sse_tap;
pub mod toml;
