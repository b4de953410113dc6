//! The integration tests: one binary, its modules mirror the product. Everything runs over the real router and real sockets on
//! loopback; nothing sleeps.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says why and stops"
)]

mod support;
mod cli;
mod request_path;
mod context;
mod memory_write;
