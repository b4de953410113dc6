//! The `stable` layout, seen from outside: what was sent once in a session is sent again byte for byte.

mod blocks;
mod epochs;
mod forget;
mod edits;
mod gate;
mod hard_gate;
mod isolation;
mod law;
mod losses;
mod races;
mod replicas;
mod scene;
mod state;
