//! The nonce that marks the memory elements of one assembly as ours.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::seams::{Entropy, EntropyError};

/// The greatest number of random bytes (ADR-0070).
pub const MAX_NONCE_BYTES: usize = 64;

/// Why there is no nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NonceError {
    /// Not between one byte and [`MAX_NONCE_BYTES`].
    #[error("a nonce has 1 to {MAX_NONCE_BYTES} random bytes")]
    Length,
    /// A given nonce is empty or has other characters than those of URL-safe base64.
    #[error("a nonce consists of letters, digits, '-' and '_'")]
    Alphabet,
    /// No randomness, so nothing that others could not guess.
    #[error("the system's random source failed")]
    Entropy,
}

impl From<EntropyError> for NonceError {
    fn from(_: EntropyError) -> Self {
        Self::Entropy
    }
}

/// One assembly's nonce: URL-safe base64 without padding. It is not secret from the model, only unknown to whoever wrote a memory
/// before the assembly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// A fresh nonce of `bytes` random bytes.
    ///
    /// # Errors
    /// [`NonceError::Length`] and [`NonceError::Entropy`].
    pub fn generate(entropy: &dyn Entropy, bytes: usize) -> Result<Self, NonceError> {
        let mut random = [0; MAX_NONCE_BYTES];
        let random = random
            .get_mut(..bytes)
            .filter(|random| !random.is_empty())
            .ok_or(NonceError::Length)?;
        entropy.fill(random)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(random)))
    }

    /// A given nonce, where an assembly is to be repeated byte for byte.
    ///
    /// # Errors
    /// [`NonceError::Alphabet`] when it is blank or could be taken for markup; [`NonceError::Length`] when it is too long.
    pub fn given(text: &str) -> Result<Self, NonceError> {
        if text.is_empty()
            || !text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        {
            return Err(NonceError::Alphabet);
        }
        if text.len() > characters(MAX_NONCE_BYTES) {
            return Err(NonceError::Length);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The characters that a nonce of `bytes` random bytes has.
pub(super) const fn characters(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}
