//! (providers)
