//! Stage 8, directive and session: takes a bound principal, yields [`Resolved`]: which session this is, and the directive, if it is at
//! hand already; otherwise its lookup runs as a branch of context assembly, inside its own slice.

pub mod directive;
mod session;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::Principal;
use crate::ids::SessionId;

use directive::{DirectiveBranch, Lookup};

/// The session and the directive of a request.
#[derive(Debug)]
pub struct Resolved {
    /// Given by the client or minted.
    pub session: SessionId,
    /// The directive, resolved once for the whole request.
    pub directive: Lookup,
}

impl Resolved {
    /// The session's header, for a refusal that comes later.
    #[must_use]
    pub fn told(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = HeaderValue::try_from(self.session.as_str()).ok()?;
        Some((session::SESSION_HEADER, value))
    }
}

/// Resolves both. Nothing here can refuse a request.
#[must_use]
pub fn resolve(
    directives: &dyn DirectiveBranch,
    principal: &Principal,
    headers: &HeaderMap,
) -> Resolved {
    let directive = match directives.at_hand(principal.scope()) {
        Some(known) => Lookup::AtHand(known),
        None => Lookup::ToLoad,
    };
    Resolved {
        session: session::of(headers),
        directive,
    }
}
