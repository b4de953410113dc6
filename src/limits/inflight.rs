//! The aggregate cap on request bodies held in memory, with a share per organisation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;

use crate::config::ServerConfig;
use crate::ids::OrgId;

/// The cap is reached; the body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many request bytes are being held")]
pub struct OverCap;

/// Counts the bytes of request bodies.
#[derive(Debug)]
pub struct InFlight {
    total: Arc<AtomicUsize>,
    orgs: DashMap<OrgId, Arc<AtomicUsize>, foldhash::fast::RandomState>,
    cap: usize,
    org_cap: usize,
}

impl InFlight {
    /// Caps from the configuration.
    #[must_use]
    pub fn new(config: &ServerConfig) -> Self {
        let cap = config.max_bytes_in_flight;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a byte count: the result is within 0..=cap"
        )]
        let org_cap = (cap as f64 * config.org_share) as usize;
        Self {
            total: Arc::default(),
            orgs: DashMap::default(),
            cap,
            org_cap: org_cap.max(config.max_body_bytes).min(cap),
        }
    }

    /// An empty holding of `org`, to grow as its body arrives.
    #[must_use]
    pub fn hold(&self, org: OrgId) -> BytesHeld {
        let org_total = self
            .orgs
            .get(&org)
            .map(|a| Arc::clone(&a))
            .unwrap_or_else(|| Arc::clone(&self.orgs.entry(org).or_default()));
        BytesHeld {
            total: Arc::clone(&self.total),
            org_total,
            cap: self.cap,
            org_cap: self.org_cap,
            bytes: 0,
        }
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Forgets organisations that hold nothing.
    pub fn sweep(&self) {
        self.orgs
            .retain(|_, held| Arc::strong_count(held) > 1 || held.load(Ordering::Relaxed) > 0);
    }
}

/// One body's bytes; given back when dropped.
#[derive(Debug)]
pub struct BytesHeld {
    total: Arc<AtomicUsize>,
    org_total: Arc<AtomicUsize>,
    cap: usize,
    org_cap: usize,
    bytes: usize,
}

impl BytesHeld {
    /// Adds `more` bytes to the holding.
    ///
    /// # Errors
    /// When the process or the organisation would hold more than its cap; nothing is added then.
    pub fn grow(&mut self, more: usize) -> Result<(), OverCap> {
        take(&self.total, more, self.cap)?;
        if take(&self.org_total, more, self.org_cap).is_err() {
            self.total.fetch_sub(more, Ordering::Relaxed);
            return Err(OverCap);
        }
        self.bytes += more;
        Ok(())
    }

    /// Bytes of this holding.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for BytesHeld {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
        self.org_total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn take(counter: &AtomicUsize, more: usize, cap: usize) -> Result<(), OverCap> {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            now.checked_add(more).filter(|sum| *sum <= cap)
        })
        .map(|_| ())
        .map_err(|_| OverCap)
}

#[cfg(test)]
mod tests {
    use super::{InFlight, OverCap};
    use crate::config::ServerConfig;
    use crate::ids::OrgId;

    #[test]
    fn one_organisation_cannot_take_it_all_and_everything_comes_back() {
        let config = ServerConfig {
            max_body_bytes: 10,
            max_bytes_in_flight: 100,
            org_share: 0.5,
            ..ServerConfig::default()
        };
        let inflight = InFlight::new(&config);
        let (a, b, c) = (OrgId::new(), OrgId::new(), OrgId::new());
        let mut first = inflight.hold(a);
        assert_eq!(first.grow(50), Ok(()));
        assert_eq!(first.grow(1), Err(OverCap));
        let mut second = inflight.hold(b);
        assert_eq!(second.grow(45), Ok(()));
        assert_eq!(inflight.hold(c).grow(6), Err(OverCap));
        assert_eq!(inflight.bytes(), 95);
        drop((first, second));
        assert_eq!(inflight.bytes(), 0);
        inflight.sweep();
        assert!(inflight.orgs.is_empty());
    }
}
