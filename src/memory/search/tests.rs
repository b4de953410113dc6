//! Behaviour of the search as a whole.
