//! The server around both paths: its routes, its probes, what it logs, and the directives it keeps.

mod console;
mod directives;
mod logs;
mod probes;
mod routes;
mod sessions;

use crate::support::{Overrides, TestApp, patient};

/// A service whose provider nobody calls.
async fn service() -> TestApp {
    TestApp::with("http://127.0.0.1:9/v1", patient, Overrides::default()).await
}
