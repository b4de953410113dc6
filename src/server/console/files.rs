//! The page and its parts, as they are in the binary, with the headers that keep anything else out of it.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use crate::ids::hex;

/// The page's own name.
pub(super) const PAGE: &str = "index.html";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Only files of this service, no text that becomes code, no frame around it, no form that goes anywhere. A memory may say what it wants.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
    // Always asked for again, and answered without a body while it is the same: an update shows at once.
    (header::CACHE_CONTROL, "no-cache"),
];

struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    tag: String,
}

macro_rules! files {
    ($($name:literal: $kind:ident,)*) => {
        [$(File::new($name, $kind, include_bytes!(concat!("assets/", $name)))),*]
    };
}

static FILES: LazyLock<[File; 13]> = LazyLock::new(|| {
    files! {
        "index.html": HTML,
        "console.css": CSS,
        "icon.svg": SVG,
        "app.js": JS,
        "api.js": JS,
        "chart.js": JS,
        "dom.js": JS,
        "live.js": JS,
        "memories.js": JS,
        "plan.js": JS,
        "preview.js": JS,
        "requests.js": JS,
        "sessions.js": JS,
    }
});

impl File {
    fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let digest = Sha256::digest(bytes);
        let short = digest.get(..16).unwrap_or_default();
        Self {
            name,
            kind,
            bytes,
            tag: format!("\"{}\"", hex(short)),
        }
    }
}

/// A file of the page, or word that the client has it; nothing for another name.
pub(super) fn answer(name: &str, asked: &HeaderMap) -> Option<Response> {
    let file = FILES.iter().find(|file| file.name == name)?;
    let known = asked
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|tag| names(tag, &file.tag)));
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Body::from(Bytes::from_static(file.bytes)).into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    if let Ok(tag) = HeaderValue::try_from(&file.tag) {
        headers.insert(header::ETAG, tag);
    }
    Some(response)
}

/// Whether one entry of `If-None-Match` means `tag`. A proxy that compresses makes tags weak.
fn names(entry: &str, tag: &str) -> bool {
    let entry = entry.trim();
    entry == "*" || entry.strip_prefix("W/").unwrap_or(entry) == tag
}
