//! Runs the harness of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ibex_fuzz::sse_tap::run(input));
