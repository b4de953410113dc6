//! The server around both paths.
