//! What is refused, and under which name.
