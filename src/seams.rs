//! The two things a program may not guess at: the time of day and randomness. Both stand behind a trait, so that tests set them.

use std::fmt::Debug;

use jiff::Timestamp;

/// The time of day. Durations are measured with `tokio::time::Instant`, never with this.
pub trait Clock: Send + Sync + Debug {
    /// The current instant in UTC, to the microsecond: what the store keeps, so that a time reads the same before and after.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the seam the ban points to"
    )]
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// The system's source of randomness could not be read.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system's random source failed")]
pub struct EntropyError;

/// Cryptographically secure random bytes.
pub trait Entropy: Send + Sync + Debug {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the system's source fails; nothing secret may be made then.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError>;
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the seam the ban points to"
    )]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        getrandom::fill(bytes).map_err(|_| EntropyError)
    }
}
