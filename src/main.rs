//! The `ibex` binary.

use std::process::ExitCode;

/// Requests allocate many small pieces on every core; this allocator is the faster one for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ibex::cli::run()
}
