//! Joining a base URL with an operation.
//!
//! One rule: a base URL without a path gets `/v1`; any other path is used as it stands, trailing slashes apart; a query string of
//! the base URL is kept. What the client asked for is appended without its own `/v1`.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// A base URL that cannot be used. It shows the URL without its query, where keys may stand.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct InvalidBaseUrl {
    url: String,
    reason: &'static str,
}

/// A provider's base URL, taken apart.
#[derive(Debug, Clone)]
pub struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    query: Option<String>,
}

impl Endpoint {
    /// Takes `base` apart.
    ///
    /// # Errors
    /// When it is not an absolute `http` or `https` URL, or carries credentials or a fragment.
    pub fn parse(base: &str) -> Result<Self, InvalidBaseUrl> {
        let shown = base.split(['?', '#']).next().unwrap_or_default();
        let fail = |reason| InvalidBaseUrl {
            url: shown.to_owned(),
            reason,
        };
        let url = url::Url::parse(base).map_err(|_| fail("not an absolute URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            let bare = "(hidden)".to_owned();
            return Err(InvalidBaseUrl {
                url: bare,
                reason: "credentials in the URL; use api_key",
            });
        }
        if url.fragment().is_some() {
            return Err(fail("a fragment has no meaning here"));
        }
        let scheme = match url.scheme() {
            "http" => Scheme::HTTP,
            "https" => Scheme::HTTPS,
            _ => return Err(fail("the scheme must be http or https")),
        };
        let host = url.host_str().ok_or_else(|| fail("no host"))?;
        let authority = url
            .port()
            .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let path = url.path().trim_end_matches('/');
        let prefix = if path.is_empty() { "/v1" } else { path };
        Ok(Self {
            scheme,
            authority: authority.parse().map_err(|_| fail("no valid host"))?,
            prefix: prefix.to_owned(),
            query: url.query().map(str::to_owned),
        })
    }

    /// The URL of an operation such as `/chat/completions`.
    ///
    /// # Errors
    /// When the operation holds characters that no URL may have.
    pub fn uri(&self, operation: &str) -> Result<Uri, InvalidBaseUrl> {
        let mut path = format!("{}{operation}", self.prefix);
        if let Some(query) = &self.query {
            path.push('?');
            path.push_str(query);
        }
        let fail = || InvalidBaseUrl {
            url: format!("{}{}", self.authority, self.prefix),
            reason: "the operation makes no valid URL",
        };
        let path: PathAndQuery = path.parse().map_err(|_| fail())?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(|_| fail())
    }

    /// `http://host:port/path`, for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn one_rule_joins_every_base_url() {
        for (base, expected) in [
            ("http://up.test", "http://up.test/v1/chat/completions"),
            ("http://up.test/", "http://up.test/v1/chat/completions"),
            ("http://up.test/v1", "http://up.test/v1/chat/completions"),
            ("http://up.test/v1/", "http://up.test/v1/chat/completions"),
            (
                "https://up.test/api/v1",
                "https://up.test/api/v1/chat/completions",
            ),
            (
                "https://up.test/v1beta/openai/",
                "https://up.test/v1beta/openai/chat/completions",
            ),
            (
                "https://up.test:8443/v10",
                "https://up.test:8443/v10/chat/completions",
            ),
            (
                "https://up.test/openai/deployments/d1",
                "https://up.test/openai/deployments/d1/chat/completions",
            ),
            (
                "https://up.test/openai/deployments/d1?api-version=2025-01-01",
                "https://up.test/openai/deployments/d1/chat/completions?api-version=2025-01-01",
            ),
        ] {
            let uri = Endpoint::parse(base)
                .and_then(|e| e.uri("/chat/completions"))
                .map(|u| u.to_string());
            assert_eq!(uri.ok().as_deref(), Some(expected), "{base}");
        }
    }

    #[test]
    fn a_wrong_base_url_is_named_without_its_secrets() {
        for base in [
            "up.test/v1",
            "ftp://up.test",
            "https://user:pw-canary@up.test/v1",
            "https://up.test/v1?key=canary#x",
        ] {
            let error = Endpoint::parse(base).expect_err("refused").to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
