//! The trace that a request belongs to (W3C Trace Context), and whether it is recorded.
//!
//! Whoever called decides: a `traceparent` with the sampled flag is recorded, one without is not. A request that brings none begins a trace,
//! and of those a configured share is recorded, chosen by the trace's own random bits, so that every service that knows the share chooses the
//! same. Nothing is allocated for a request, sampled or not, before it has been answered.

use http::{HeaderMap, HeaderValue};
use uuid::Uuid;

/// A trace: 16 bytes, not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// A span: 8 bytes, not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Lower-case digits of an identifier, on the stack.
#[derive(Debug, Clone, Copy)]
pub struct Hex<const N: usize>([u8; N]);

impl<const N: usize> Hex<N> {
    fn of(bytes: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [b'0'; N];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            for (digit, nibble) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
                *digit = DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            }
        }
        Self(digits)
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// `N` bytes of `2 * N` lower-case digits that are not all zero.
fn parse<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value(*high)? << 4 | value(*low)?;
    }
    (bytes != [0; N]).then_some(bytes)
}

impl TraceId {
    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The digits.
    #[must_use]
    pub fn hex(&self) -> Hex<32> {
        Hex::of(&self.0)
    }

    /// The random part that every trace has, whoever made it: its last 7 bytes.
    fn random(self) -> u64 {
        let [.., a, b, c, d, e, f, g] = self.0;
        u64::from_be_bytes([0, a, b, c, d, e, f, g])
    }
}

impl SpanId {
    /// A new one.
    #[must_use]
    pub fn new() -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *Uuid::new_v4().as_bytes();
        Self([a, b, c, d, e, f, g, h])
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl Default for SpanId {
    fn default() -> Self {
        Self::new()
    }
}

/// Which traces that begin here are recorded, and whether any are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    exports: bool,
    /// Of the 2^56 values of a trace's random part, those below it.
    below: u64,
}

impl Sampler {
    const ALL: u64 = 1 << 56;

    /// Records nothing: there is nowhere to export to.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            exports: false,
            below: 0,
        }
    }

    /// Records `ratio` of the traces that begin here, and those that a caller records.
    #[must_use]
    pub fn new(ratio: f64) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 2^56, which lies between 0 and that"
        )]
        let below = (ratio.clamp(0.0, 1.0) * Self::ALL as f64) as u64;
        Self {
            exports: true,
            below,
        }
    }
}

/// A request's place in its trace.
#[derive(Debug, Clone, Copy)]
pub struct Trace {
    id: TraceId,
    parent: Option<SpanId>,
    /// The span of the request here, and the one of the provider's call; nothing when it is not recorded.
    spans: Option<(SpanId, SpanId)>,
}

impl Trace {
    /// The trace that `headers` name, else a new one.
    #[must_use]
    pub fn of(headers: &HeaderMap, sampler: Sampler) -> Self {
        let given = Parent::of(headers);
        let id = given.map_or_else(|| TraceId(*Uuid::new_v4().as_bytes()), |p| p.trace);
        let chosen = match given {
            Some(parent) => parent.sampled,
            None => id.random() < sampler.below,
        };
        Self {
            id,
            parent: given.map(|p| p.span),
            spans: (sampler.exports && chosen).then(|| (SpanId::new(), SpanId::new())),
        }
    }

    /// The trace.
    #[must_use]
    pub const fn id(&self) -> TraceId {
        self.id
    }

    /// The caller's span.
    #[must_use]
    pub const fn parent(&self) -> Option<SpanId> {
        self.parent
    }

    /// Whether it is recorded here.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.spans.is_some()
    }

    /// The span of the request here and the one of the provider's call, when they are recorded.
    #[must_use]
    pub const fn spans(&self) -> Option<(SpanId, SpanId)> {
        self.spans
    }

    /// The `traceparent` for the provider, whose parent is our span of the call; nothing when that span is not recorded, so that the caller's
    /// own stands.
    #[must_use]
    pub fn outgoing(&self) -> Option<HeaderValue> {
        let (_, call) = self.spans?;
        let call: Hex<16> = Hex::of(call.as_bytes());
        let text = ["00-", self.id.hex().as_str(), "-", call.as_str(), "-01"].concat();
        HeaderValue::try_from(text).ok()
    }

    /// Whether the request brought a trace that may be passed on.
    #[must_use]
    pub const fn was_given(&self) -> bool {
        self.parent.is_some()
    }
}

/// What a `traceparent` says.
#[derive(Debug, Clone, Copy)]
struct Parent {
    trace: TraceId,
    span: SpanId,
    sampled: bool,
}

impl Parent {
    /// What the one `traceparent` of `headers` says. Two of them, or one that is not well formed, say nothing.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all("traceparent").iter();
        let (Some(text), None) = (given.next(), given.next()) else {
            return None;
        };
        let mut parts = text.as_bytes().split(|b| *b == b'-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let known = version == b"00";
        // A later version may say more behind these four; this one may not.
        let well_formed = version.len() == 2
            && version.iter().all(hex)
            && version != b"ff"
            && flags.len() == 2
            && flags.iter().all(hex)
            && !(known && parts.next().is_some());
        let low = flags.last().copied()?;
        let odd = matches!(low, b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'd' | b'f');
        well_formed.then_some(Self {
            trace: TraceId(parse(trace)?),
            span: SpanId(parse(span)?),
            sampled: odd,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::{Sampler, Trace};

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn of(parent: &str, sampler: Sampler) -> Trace {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", parent.parse().unwrap());
        Trace::of(&headers, sampler)
    }

    #[test]
    fn the_callers_trace_and_its_decision_hold() {
        for (flags, sampled) in [("01", true), ("00", false), ("03", true), ("fe", false)] {
            for ratio in [0.0, 1.0] {
                let text = format!("00-{TRACE}-b7ad6b7169203331-{flags}");
                let trace = of(&text, Sampler::new(ratio));
                assert_eq!(trace.id().hex().as_str(), TRACE);
                assert!(trace.was_given());
                assert_eq!(trace.is_sampled(), sampled, "{flags} {ratio}");
                let out = trace.outgoing().map(|v| v.to_str().unwrap().to_owned());
                assert_eq!(out.is_some(), sampled);
                if let Some(out) = out {
                    assert!(out.starts_with(&format!("00-{TRACE}-")) && out.ends_with("-01"));
                    assert!(
                        !out.contains("b7ad6b7169203331"),
                        "the parent is our own span"
                    );
                }
            }
        }
        let unrecorded = of(&format!("00-{TRACE}-b7ad6b7169203331-01"), Sampler::off());
        assert!(!unrecorded.is_sampled() && unrecorded.was_given());
    }

    #[test]
    fn what_is_not_well_formed_begins_a_new_trace() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c8031-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
        ] {
            let trace = of(text, Sampler::off());
            assert!(!trace.was_given(), "{text}");
            assert_ne!(trace.id().hex().as_str(), TRACE, "{text}");
        }
        let later = of(
            &format!("01-{TRACE}-b7ad6b7169203331-01-what-comes-later"),
            Sampler::off(),
        );
        assert_eq!(later.id().hex().as_str(), TRACE);
    }

    #[test]
    fn a_ratio_chooses_about_that_share() {
        let headers = HeaderMap::new();
        let chosen = |ratio| {
            let sampler = Sampler::new(ratio);
            (0..4_000)
                .filter(|_| Trace::of(&headers, sampler).is_sampled())
                .count()
        };
        assert_eq!((chosen(0.0), chosen(1.0)), (0, 4_000));
        // Eight standard deviations around a quarter.
        assert!((780..1_220).contains(&chosen(0.25)));
    }
}
