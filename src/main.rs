//! The `ibex` binary.

fn main() {}
