//! What is read of a chat request, and what is refused.
