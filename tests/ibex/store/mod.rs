//! The stores: one contract for every engine, and for every cache of frozen sessions.

mod cache;
mod contract;
pub(crate) mod fixtures;
mod sqlite;
mod postgres;
