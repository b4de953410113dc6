//! The in-process cache.
