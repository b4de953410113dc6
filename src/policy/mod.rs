//! (policy)
