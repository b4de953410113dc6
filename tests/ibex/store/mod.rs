//! The stores: one contract for every engine, and for every cache of frozen sessions.

mod contract;
mod fixtures;
mod sqlite;
mod postgres;
