//! Stage 8, directive and session: takes a bound principal, yields [`Resolved`]: which session this is, and the directive, if it is at
//! hand already; otherwise its lookup runs as a branch of context assembly, inside its own slice.

pub mod directive;
mod session;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::app::App;
use crate::auth::Principal;
use crate::ids::SessionId;
use crate::openai::ChatRequest;
use crate::session::Chain;

use directive::Lookup;

/// The session and the directive of a request.
#[derive(Debug)]
pub struct Resolved {
    /// Given by the client, or derived from its first message.
    pub session: SessionId,
    /// What the request's messages hash to.
    pub chain: Chain,
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
    app: &App,
    principal: &Principal,
    chat: &ChatRequest,
    headers: &HeaderMap,
) -> Resolved {
    let scope = principal.scope();
    let directive = match app.directives.at_hand(scope) {
        Some(known) => Lookup::AtHand(known),
        None => Lookup::ToLoad,
    };
    let secret = &app.sessions.secret;
    let chain = Chain::of(chat, scope.org(), secret);
    let derived = || match chain.first_user() {
        Some(first) => secret.derived_id(scope, first),
        None => SessionId::mint(),
    };
    Resolved {
        session: session::given(headers).unwrap_or_else(derived),
        chain,
        directive,
    }
}
