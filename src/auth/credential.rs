//! The text a client presents as proof. It is a secret: no `Debug` shows it, and past this module only its digest is kept.

use std::fmt;

/// A presented credential: 1 to [`Credential::MAX`] visible ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credential<'a>(&'a str);

impl<'a> Credential<'a> {
    /// The greatest length in bytes. Tokens of common issuers stay under 4 KiB; whatever is longer is not worth hashing.
    pub const MAX: usize = 8 * 1024;

    /// Takes a header's text, or nothing if no credential can look like that.
    #[must_use]
    pub fn new(text: &'a str) -> Option<Self> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        (!text.is_empty() && text.len() <= Self::MAX && visible).then_some(Self(text))
    }

    pub(in crate::auth) fn as_str(&self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(<hidden>)")
    }
}

/// A freshly issued token's whole text, shown once to the one who asked for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(in crate::auth) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for its one printing.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(<hidden>)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Credential, Secret};

    #[test]
    fn a_credential_is_bounded_and_visible() {
        assert!(Credential::new(&"x".repeat(Credential::MAX)).is_some());
        for bad in [
            "",
            "a b",
            "a\t",
            "sch\u{f6}n",
            &"x".repeat(Credential::MAX + 1),
        ] {
            assert!(Credential::new(bad).is_none(), "{} bytes", bad.len());
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let shown = format!(
            "{:?} {:?}",
            Credential::new("canary"),
            Secret::new("canary".to_owned())
        );
        assert!(!shown.contains("canary"), "{shown}");
    }
}
