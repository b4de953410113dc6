//! The engine on a real server.
