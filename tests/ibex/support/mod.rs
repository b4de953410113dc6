//! What every test stands on: a running service over a fresh store, a plain HTTP client, and a provider that does as it is told.

mod app;
mod client;
mod items;
mod log;
pub(crate) mod services;
mod settings;
pub(crate) mod templates;
mod upstream;

pub(crate) use app::{Overrides, TestApp};
pub(crate) use client::{Answer, Client};
pub(crate) use items::{items, parsed};
pub(crate) use log::Log;
pub(crate) use settings::{assembled, in_assembled, patient};
pub(crate) use upstream::{
    Event, Exchange, Received, Script, Upstream, chunk, completion, ordinary, soon,
};
