//! The command line: one file for each group of commands.
//!
//! ```text
//! args      everything that can be typed           error     what a failure prints and which code it exits with
//! desk      what the commands work with            output    tables, or JSON for scripts
//! check_config  health  init  org  agent  token  directive  memory  remember  import  preview
//! transfer  a whole store out and in               migrate   the database of [postgres]
//! serve         demo, with the provider in echo           transcript  chat messages for people
//! ```
//!
//! Commands write results to standard output and everything else to standard error. They exit with 0, with 1 when something failed,
//! and with 2 when the command line itself is wrong.

pub mod args;
pub mod error;
pub mod output;
pub mod desk;
pub mod check_config;
pub mod init;
pub mod org;
pub mod agent;
pub mod token;
pub mod directive;
pub mod memory;
mod remember;
mod import;
mod preview;
mod transfer;
mod transcript;
mod health;
mod serve;
mod demo;
mod echo;
mod run;

pub use args::{Cli, Command};
pub use desk::{Desk, Minted, TokenRequest};
pub use error::{CliError, finish, parse};
pub use output::Out;
pub use run::run;
