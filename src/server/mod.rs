//! (server)
