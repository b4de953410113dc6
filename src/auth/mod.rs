//! Identity: who is asking, for which agent, with which permissions. The only module that can make a [`Principal`] or a [`Scope`].
//!
//! ```text
//! Credential --verify--> TokenClaims --bind(agent, user)--> Principal
//!     |  pat: keyed digest against the stored row
//!     |  jwt: signature against a configured issuer's keys
//!     `- cache: answers for as long as neither the entry nor the token has run out
//! ```

mod verifier;
mod credential;
pub mod pat;
pub mod jwt;
mod cache;
mod claims;
mod operator;
mod principal;
mod permissions;
#[cfg(test)]
pub(crate) mod testing;

pub use claims::TokenClaims;
pub use credential::{Credential, Secret};
pub use operator::{OperatorError, operator_principal};
pub use permissions::Permissions;
pub use principal::{HistoryRight, Principal, ReviewRight, Scope};
pub use verifier::{AuthError, BindError, Cause, Verifier};
