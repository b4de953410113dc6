//! Key sets that are fetched: one fetch at a time, no more often than the floor, and the last good set for a while when fetching fails.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::key::Key;

/// The largest key set that is read.
pub const MAX_KEY_SET_BYTES: usize = 1024 * 1024;
/// The most keys taken from one set; issuers publish a handful.
const MAX_KEYS: usize = 256;
/// Time for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a token waits for a refresh while a key for it is at hand.
const REFRESH_WAIT: Duration = Duration::from_millis(250);

/// Why a key set could not be had.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeySetError {
    /// The transport failed; the text names no credential.
    #[error("the key set cannot be fetched: {0}")]
    Fetch(String),
    /// No answer in time.
    #[error("the key set was not answered in time")]
    TimedOut,
    /// Larger than [`MAX_KEY_SET_BYTES`].
    #[error("the key set is too large")]
    TooLarge,
    /// Not a key set.
    #[error("the key set cannot be read")]
    Malformed,
    /// No usable set, and the next fetch is not due yet.
    #[error("the key set is not available")]
    Unavailable,
}

/// Where a key set comes from. The address is the operator's and fixed; implementations follow no redirect and stop reading at
/// [`MAX_KEY_SET_BYTES`].
#[async_trait]
pub trait KeySetSource: Send + Sync + fmt::Debug {
    /// The set's JSON.
    async fn fetch(&self) -> Result<Bytes, KeySetError>;
}

type Fetched = Result<Arc<[Key]>, KeySetError>;
type Fetch = Shared<BoxFuture<'static, Fetched>>;

/// The three times of an issuer's key set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Least time between the starts of two fetches.
    pub(super) floor: Duration,
    /// Age at which the set is fetched again.
    pub(super) refresh_after: Duration,
    /// How long past that age the set serves while fetching fails.
    pub(super) stale_if_error: Duration,
}

/// A fetched key set.
pub(super) struct KeySet {
    source: Arc<dyn KeySetSource>,
    allowed: Arc<[Algorithm]>,
    timing: Timing,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last good set and when its fetch began.
    current: Option<(Arc<[Key]>, Instant)>,
    /// When the last fetch began.
    last_start: Option<Instant>,
    /// Whether the last finished fetch failed.
    failing: bool,
    /// The fetch under way. It stays here when the request that began it goes away, and whoever comes next drives it on.
    under_way: Option<(Fetch, Instant)>,
}

impl KeySet {
    pub(super) fn new(
        source: Arc<dyn KeySetSource>,
        allowed: Vec<Algorithm>,
        timing: Timing,
    ) -> Self {
        Self {
            source,
            allowed: allowed.into(),
            timing,
            state: Mutex::default(),
        }
    }

    /// The set to check a token with: refreshed when it is old or does not know the token's key, as far as the floor allows.
    pub(super) async fn for_token(&self, kid: Option<&str>, algorithm: Algorithm) -> Fetched {
        let knows = |keys: &Arc<[Key]>| keys.iter().any(|key| key.serves(kid, algorithm));
        let (usable, young) = self.usable(Instant::now());
        match usable.filter(knows) {
            Some(keys) if young => return Ok(keys),
            // An elapsed wait is no failure: the key at hand is still good, and the fetch goes on with the next token.
            Some(_) => drop(timeout(REFRESH_WAIT, self.refresh()).await),
            None => self.refresh().await,
        }
        let failing = self.state.lock().failing;
        match self.usable(Instant::now()).0 {
            // Without a fresh set nobody can say that the key does not exist.
            Some(keys) if !failing || knows(&keys) => Ok(keys),
            _ => Err(KeySetError::Unavailable),
        }
    }

    /// The set that may serve at `now`, and whether it needs no refresh yet.
    fn usable(&self, now: Instant) -> (Option<Arc<[Key]>>, bool) {
        let state = self.state.lock();
        let Some((keys, since)) = &state.current else {
            return (None, false);
        };
        let age = now.saturating_duration_since(*since);
        let Timing {
            refresh_after,
            stale_if_error,
            ..
        } = self.timing;
        let usable = age <= refresh_after.saturating_add(stale_if_error);
        (usable.then(|| Arc::clone(keys)), age < refresh_after)
    }

    /// Joins the fetch under way, or begins one if the floor allows.
    async fn refresh(&self) {
        let Some((fetch, began)) = self.fetch(Instant::now()) else {
            return;
        };
        let fetched = fetch.await;
        self.settle(fetched, began);
    }

    fn fetch(&self, now: Instant) -> Option<(Fetch, Instant)> {
        let mut state = self.state.lock();
        // One that nobody drove for longer than it may take is given up.
        let joinable = state
            .under_way
            .as_ref()
            .filter(|(_, began)| now.saturating_duration_since(*began) <= FETCH_TIMEOUT);
        if let Some((fetch, began)) = joinable {
            return Some((fetch.clone(), *began));
        }
        let floored = state
            .last_start
            .is_some_and(|start| now.saturating_duration_since(start) < self.timing.floor);
        if floored {
            return None;
        }
        let fetch = fetch_and_read(Arc::clone(&self.source), Arc::clone(&self.allowed))
            .boxed()
            .shared();
        state.last_start = Some(now);
        state.under_way = Some((fetch.clone(), now));
        Some((fetch, now))
    }

    /// Takes a fetch's result once, whichever of its waiters comes first.
    fn settle(&self, fetched: Fetched, began: Instant) {
        let mut state = self.state.lock();
        if state
            .under_way
            .as_ref()
            .is_none_or(|(_, started)| *started != began)
        {
            return;
        }
        state.under_way = None;
        state.failing = fetched.is_err();
        match fetched {
            Ok(keys) => state.current = Some((keys, began)),
            Err(error) => tracing::warn!(%error, "a key set could not be refreshed"),
        }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("source", &self.source)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

async fn fetch_and_read(source: Arc<dyn KeySetSource>, allowed: Arc<[Algorithm]>) -> Fetched {
    let body = timeout(FETCH_TIMEOUT, source.fetch())
        .await
        .map_err(|_| KeySetError::TimedOut)??;
    read(&body, &allowed)
}

/// The usable keys of a set. Keys of other kinds or for other ends are passed over, so that one odd key does not take the rest down.
fn read(body: &[u8], allowed: &[Algorithm]) -> Fetched {
    #[derive(Deserialize)]
    struct Document {
        keys: Vec<Value>,
    }

    if body.len() > MAX_KEY_SET_BYTES {
        return Err(KeySetError::TooLarge);
    }
    let document: Document = serde_json::from_slice(body).map_err(|_| KeySetError::Malformed)?;
    let jwks = document
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    Ok(jwks
        .filter_map(|jwk| Key::from_jwk(&jwk, allowed))
        .take(MAX_KEYS)
        .collect())
}
