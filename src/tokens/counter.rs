//! The counter: byte-pair encoding for OpenAI's vocabularies, bytes for the rest, and a keyed cache in front of the slow one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hmac::digest::Key;
use hmac::{Hmac, KeyInit, Mac};
use moka::sync::Cache;
use sha2::Sha256;
use tiktoken::CoreBpe;
use tokio::time::Instant;

use super::{Count, Family, TokenCounts};
use crate::ids::OrgId;

/// Texts below this many bytes are cheaper to count than to look up.
const CACHED_FROM_BYTES: usize = 64;

/// Bytes of the truncated digest that stands for a text in the cache. The key is secret, so 128 bits leave no collision to find.
const DIGEST_BYTES: usize = 16;

type Digest = [u8; DIGEST_BYTES];

/// Counts tokens and remembers the answers. A clone shares the cache.
///
/// The cache holds digests and numbers, never text, and its keys contain the organisation: no tenant can learn from timing what
/// another one has sent.
#[derive(Clone)]
pub struct Counter {
    inner: Arc<Inner>,
}

struct Inner {
    keyed: Hmac<Sha256>,
    cache: Cache<Digest, u32, foldhash::fast::RandomState>,
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter")
            .field("entries", &self.inner.cache.entry_count())
            .finish_non_exhaustive()
    }
}

impl Counter {
    /// A counter that keys its cache with `hash_key` and keeps at most about `cache_entries` answers.
    #[must_use]
    pub fn new(hash_key: [u8; 32], cache_entries: u64) -> Self {
        let mut block = Key::<Hmac<Sha256>>::default();
        block
            .iter_mut()
            .zip(hash_key)
            .for_each(|(slot, byte)| *slot = byte);
        let cache = Cache::builder()
            .max_capacity(cache_entries)
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self {
            inner: Arc::new(Inner {
                keyed: Hmac::new(&block),
                cache,
            }),
        }
    }

    /// The tokens of `text` under `family`, for a request of `org`.
    ///
    /// Control tokens such as `<|endoftext|>` are ordinary text here: a client must not be able to shorten its own count, or to
    /// fail the request, by writing one.
    #[must_use]
    pub fn count(&self, org: OrgId, family: Family, text: &str) -> u32 {
        let Some(bpe) = vocabulary(family) else {
            return estimate(text);
        };
        if text.len() < CACHED_FROM_BYTES {
            return saturate(bpe.count(text));
        }
        // Two requests that miss at once both count: that is cheaper than making one of them wait on a lock.
        let digest = self.digest(org, family, text);
        self.inner.cache.get(&digest).unwrap_or_else(|| {
            let count = saturate(bpe.count(text));
            self.inner.cache.insert(digest, count);
            count
        })
    }

    /// As [`count`](Self::count), in pieces, given up at `deadline`. Text without spaces costs the tokenizer most, and a client chooses
    /// the text: this is what keeps a thread its own. Pieces end before a word, where the vocabularies split anyway, so their sum is
    /// the text's count; a word longer than a piece may count a token more for each cut.
    #[must_use]
    pub fn count_until(
        &self,
        org: OrgId,
        family: Family,
        text: &str,
        deadline: Instant,
    ) -> Option<u32> {
        let Some(bpe) = vocabulary(family) else {
            return Some(estimate(text));
        };
        if text.len() < CACHED_FROM_BYTES {
            return Some(saturate(bpe.count(text)));
        }
        let digest = self.digest(org, family, text);
        if let Some(known) = self.inner.cache.get(&digest) {
            return Some(known);
        }
        let (mut left, mut sum) = (text, 0_usize);
        while !left.is_empty() {
            if Instant::now() >= deadline {
                return None;
            }
            let (piece, rest) = left.split_at(piece_end(left));
            sum += bpe.count(piece);
            left = rest;
        }
        let count = saturate(sum);
        self.inner.cache.insert(digest, count);
        Some(count)
    }

    /// Whether counting under `family` can begin at once: a vocabulary that is still being loaded holds its callers up.
    #[must_use]
    pub fn is_ready(&self, family: Family) -> bool {
        match family {
            Family::O200kBase | Family::Cl100kBase => LOADED.load(Ordering::Acquire),
            Family::Claude | Family::Unknown => true,
        }
    }

    /// As [`count`](Self::count), labelled with the family.
    #[must_use]
    pub fn counted(&self, org: OrgId, family: Family, text: &str) -> Count {
        Count::new(family, self.count(org, family, text))
    }

    /// The tokens of `text` under every family; what is stored beside a memory. Not cached: a memory is written once.
    #[must_use]
    pub fn counts(&self, text: &str) -> TokenCounts {
        let of = |family| {
            vocabulary(family).map_or_else(|| estimate(text), |bpe| saturate(bpe.count(text)))
        };
        TokenCounts {
            o200k: of(Family::O200kBase),
            cl100k: of(Family::Cl100kBase),
            claude: of(Family::Claude),
            unknown: of(Family::Unknown),
        }
    }

    /// Loads the vocabularies, a tenth of a second each, so that no request has to. For a background thread at start.
    pub fn warm(&self) {
        for family in Family::ALL {
            vocabulary(family);
        }
        LOADED.store(true, Ordering::Release);
    }

    fn digest(&self, org: OrgId, family: Family, text: &str) -> Digest {
        let mut mac = self.inner.keyed.clone();
        // Both leading parts have a fixed length, so no two inputs run together.
        mac.update(org.as_bytes());
        mac.update(&[family as u8]);
        mac.update(text.as_bytes());
        let mut digest = Digest::default();
        digest
            .iter_mut()
            .zip(mac.finalize().into_bytes())
            .for_each(|(slot, byte)| *slot = byte);
        digest
    }
}

#[cfg(test)]
impl Counter {
    pub(super) fn digest_for_test(&self, org: OrgId, family: Family, text: &str) -> Digest {
        self.digest(org, family, text)
    }

    pub(super) fn entries_for_test(&self) -> u64 {
        self.inner.cache.run_pending_tasks();
        self.inner.cache.entry_count()
    }
}

/// Whether every vocabulary has been loaded; they belong to the process.
static LOADED: AtomicBool = AtomicBool::new(false);

/// Bytes that are counted between two looks at the clock: half a millisecond of the text that costs most.
const PIECE: usize = 1_024;

/// Where the next piece of `text` ends: before the last space that stands alone between two words, else at [`PIECE`].
fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE {
        return text.len();
    }
    let end = text.floor_char_boundary(PIECE);
    let bytes = text.as_bytes().get(..end).unwrap_or_default();
    let alone = |window: &&[u8]| matches!(window, [a, b' ', c] if !a.is_ascii_whitespace() && !c.is_ascii_whitespace());
    let from_end = bytes
        .windows(3)
        .rev()
        .enumerate()
        .find(|(_, window)| alone(window));
    // The window that stands `back` places before the last one has its space at `len - 2 - back`.
    from_end.map_or(end, |(back, _)| bytes.len() - 2 - back)
}

/// The exact tokenizer of a family that has one.
fn vocabulary(family: Family) -> Option<&'static CoreBpe> {
    match family {
        Family::O200kBase => tiktoken::get_encoding("o200k_base"),
        Family::Cl100kBase => tiktoken::get_encoding("cl100k_base"),
        Family::Claude | Family::Unknown => None,
    }
}

/// A third of the bytes, rounded up. It is never below the character rules of the contract's section 8 (a quarter of the
/// characters; two sevenths of them for Claude), and unlike them it does not undercount scripts with a token per character.
fn estimate(text: &str) -> u32 {
    saturate(text.len().div_ceil(3))
}

fn saturate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
