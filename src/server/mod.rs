//! The HTTP side: the listener, every route in one table, and thin handlers that call the paths.

mod layers;
mod listen;
mod write_timeout;
mod service;
mod routes;
mod probes;
mod chat;
mod console;
mod context;
mod directives;
mod json;
mod memories;
mod sessions;

pub use listen::{Drained, ListenError, Listening, Stop, listen};
pub use routes::{Access, ROUTES, RouteInfo, router};
