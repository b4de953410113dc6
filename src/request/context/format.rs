//! (stage file)
