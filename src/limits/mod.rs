//! (limits)
