//! Where injected text lands.
