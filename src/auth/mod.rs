//! Identity: who is asking, for which agent, with which permissions. The only module that can make a [`Principal`] or a [`Scope`].

mod permissions;
mod principal;

pub use permissions::Permissions;
pub use principal::{Principal, Scope};
