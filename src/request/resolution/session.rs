//! The session's name: `X-IBEX-Session-ID` when it is one valid name.

use http::{HeaderMap, HeaderName};

use crate::ids::SessionId;

/// The header that names the session, in and out.
pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("x-ibex-session-id");

/// The client's session; none when the header is absent, doubled or not valid (contract, section 5).
pub(super) fn given(headers: &HeaderMap) -> Option<SessionId> {
    let mut given = headers.get_all(&SESSION_HEADER).iter();
    match (given.next().and_then(|v| v.to_str().ok()), given.next()) {
        (Some(text), None) => text.parse().ok(),
        _ => None,
    }
}
