//! Frozen sessions that replicas share: the answers of the process's own cache, from whichever replica, and nothing that outlives its use.

mod items;
mod model;
mod races;
mod lanes;
mod outages;
