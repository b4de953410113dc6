//! The `stable` layout, seen from outside: what was sent once in a session is sent again byte for byte.

mod hard_gate;
mod law;
mod races;
mod state;
