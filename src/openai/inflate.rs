//! Reading along with a compressed answer: bytes are inflated as they pass, under a bound, into something that looks at plain text.

use std::fmt;
use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderValue;

/// How an answer's bytes are encoded (`Content-Encoding`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContentCoding {
    /// As they are.
    #[default]
    Identity,
    /// gzip.
    Gzip,
    /// zlib, or the raw deflate that some servers send under this name.
    Deflate,
    /// Something that is not read here; the answer passes unseen.
    Unknown,
}

impl ContentCoding {
    /// Reads the header; without one the answer is plain.
    #[must_use]
    pub fn of(header: Option<&HeaderValue>) -> Self {
        let Some(header) = header else {
            return Self::Identity;
        };
        let name = header.as_bytes().trim_ascii();
        let is = |coding: &str| name.eq_ignore_ascii_case(coding.as_bytes());
        if is("") || is("identity") {
            Self::Identity
        } else if is("gzip") || is("x-gzip") {
            Self::Gzip
        } else if is("deflate") {
            Self::Deflate
        } else {
            Self::Unknown
        }
    }
}

/// An answer may inflate to this many times its size. Event streams repeat themselves and reach 50; the format's own limit is 1,032.
const MAX_RATIO: u64 = 200;

/// This much may come out whatever went in, in bytes: short answers of zeros are harmless.
const FREE_OUTPUT: u64 = 1 << 20;

/// Nothing inflates beyond this, in bytes.
const MAX_OUTPUT: u64 = 256 << 20;

/// Something that reads plain text in pieces.
pub(super) trait Sink {
    /// Takes the next piece; false when it can take no more.
    fn take(&mut self, bytes: &[u8]) -> bool;
}

/// The writer under a decoder: counts what comes out against what went in.
struct Bounded<S> {
    /// Gone once the answer has ended.
    sink: Option<S>,
    taken: u64,
    given: u64,
}

impl<S: Sink> Bounded<S> {
    fn new(sink: S) -> Self {
        Self {
            sink: Some(sink),
            taken: 0,
            given: 0,
        }
    }
}

impl<S: Sink> Write for Bounded<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.given = self.given.saturating_add(bytes.len() as u64);
        let allowed = self
            .taken
            .saturating_mul(MAX_RATIO)
            .saturating_add(FREE_OUTPUT)
            .min(MAX_OUTPUT);
        let fits = self.given <= allowed && self.sink.as_mut().is_some_and(|sink| sink.take(bytes));
        if fits {
            Ok(bytes.len())
        } else {
            Err(io::ErrorKind::QuotaExceeded.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A decoder of one of the encodings.
trait Inflate<S>: Write {
    fn bounded(&mut self) -> &mut Bounded<S>;
}

impl<S: Sink> Inflate<S> for MultiGzDecoder<Bounded<S>> {
    fn bounded(&mut self) -> &mut Bounded<S> {
        self.get_mut()
    }
}

impl<S: Sink> Inflate<S> for ZlibDecoder<Bounded<S>> {
    fn bounded(&mut self) -> &mut Bounded<S> {
        self.get_mut()
    }
}

impl<S: Sink> Inflate<S> for DeflateDecoder<Bounded<S>> {
    fn bounded(&mut self) -> &mut Bounded<S> {
        self.get_mut()
    }
}

enum State<S> {
    Plain(S),
    /// `deflate` before its first two bytes, which tell the two forms apart.
    Undecided(Vec<u8>, S),
    Compressed(Box<dyn Inflate<S> + Send>),
    /// Not readable, or over a bound; every buffer is gone.
    Lost,
}

/// A sink behind the answer's encoding.
pub(super) struct Inflating<S> {
    state: State<S>,
}

impl<S> fmt::Debug for Inflating<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflating")
            .field("lost", &matches!(self.state, State::Lost))
            .finish_non_exhaustive()
    }
}

impl<S: Sink + Send + 'static> Inflating<S> {
    pub(super) fn new(coding: ContentCoding, sink: S) -> Self {
        let state = match coding {
            ContentCoding::Identity => State::Plain(sink),
            ContentCoding::Gzip => {
                State::Compressed(Box::new(MultiGzDecoder::new(Bounded::new(sink))))
            }
            ContentCoding::Deflate => State::Undecided(Vec::with_capacity(2), sink),
            ContentCoding::Unknown => State::Lost,
        };
        Self { state }
    }

    /// Takes the next bytes of the answer. After a fault it takes and drops them.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let alive = match &mut self.state {
            State::Plain(sink) => sink.take(bytes),
            State::Compressed(decoder) => {
                let bounded = decoder.bounded();
                bounded.taken = bounded.taken.saturating_add(bytes.len() as u64);
                // Nothing is taken behind the end of the compressed text; what came before it counts.
                decoder
                    .write_all(bytes)
                    .map_or_else(|error| error.kind() == io::ErrorKind::WriteZero, |()| true)
            }
            State::Undecided(head, _) => {
                head.extend_from_slice(bytes);
                if head.len() >= 2 {
                    self.decide();
                }
                true
            }
            State::Lost => true,
        };
        if !alive {
            self.state = State::Lost;
        }
    }

    fn decide(&mut self) {
        let State::Undecided(head, sink) = std::mem::replace(&mut self.state, State::Lost) else {
            return;
        };
        let is_zlib = matches!(head.as_slice(), [cmf, flags, ..] if cmf & 0x0f == 8 && u16::from_be_bytes([*cmf, *flags]) % 31 == 0);
        self.state = State::Compressed(if is_zlib {
            Box::new(ZlibDecoder::new(Bounded::new(sink)))
        } else {
            Box::new(DeflateDecoder::new(Bounded::new(sink)))
        });
        self.feed(&head);
    }

    /// Ends the answer, cut or whole, and hands the sink back; nothing when it was lost.
    pub(super) fn finish(self) -> Option<S> {
        match self.state {
            State::Plain(sink) | State::Undecided(_, sink) => Some(sink),
            State::Compressed(mut decoder) => {
                // A cut stream is no fault here, running over a bound is.
                let over = decoder
                    .flush()
                    .is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded);
                decoder.bounded().sink.take().filter(|_| !over)
            }
            State::Lost => None,
        }
    }
}
