//! The session's name: `X-IBEX-Session-ID` when it is one valid name, else a minted one.

use http::{HeaderMap, HeaderName};

use crate::ids::SessionId;

/// The header that names the session, in and out.
pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("x-ibex-session-id");

/// The client's session, or a new one when the header is absent, doubled or not valid (contract, section 5).
pub(super) fn of(headers: &HeaderMap) -> SessionId {
    let mut given = headers.get_all(&SESSION_HEADER).iter();
    match (
        given
            .next()
            .and_then(|v| v.to_str().ok())
            .and_then(|t| t.parse().ok()),
        given.next(),
    ) {
        (Some(session), None) => session,
        _ => SessionId::mint(),
    }
}
