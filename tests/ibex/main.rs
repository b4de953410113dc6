//! The integration tests: one binary, its modules mirror the product. Everything runs over the real router and real sockets on
//! loopback; nothing sleeps.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and stops; a table of cases is one piece"
)]

mod support;
mod house;
mod services;
mod cli;
mod request_path;
mod context;
mod memory_write;
mod embedder;
mod server;
mod telemetry;
mod redis;
mod store;
mod replicas;
mod fuzz;
