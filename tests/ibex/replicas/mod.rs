//! Replicas: several processes of the real binary over one PostgreSQL and one Redis, as an operator runs them.

mod fleet;
mod sameness;
mod authority;
mod outages;
