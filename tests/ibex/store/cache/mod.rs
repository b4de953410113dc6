//! The caches of frozen sessions: one contract.

mod contract;
mod in_process;
mod redis;
