//! Providers: who serves which model, how their URLs are joined, what is known of their models, and the one HTTP client.

mod ask;
mod catalogue;
mod client;
mod endpoint;
mod registry;

pub use ask::{AskError, Question, ask};
pub use catalogue::ModelProfile;
pub use client::{Client, ClientError, FetchError, HttpKeySet, client};
pub use endpoint::{Endpoint, InvalidBaseUrl};
pub use registry::{InvalidProvider, Provider, Registry, Route};
