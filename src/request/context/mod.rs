//! Context assembly: budget, retrieve, rank, pack, format, inject, and the record of it all, the plan.

pub mod budget;
pub mod rank;
pub mod pack;
pub mod format;
pub mod inject;
pub mod plan;
