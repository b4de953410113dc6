//! (tests of context)
