//! The body that goes upstream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// A request body in pieces whose total length is known. A clone costs one reference count and starts where the original stands, so keep
/// an unsent one to send again.
#[derive(Debug, Clone)]
pub struct RewrittenBody {
    frames: Arc<[Bytes]>,
    next: usize,
    remaining: u64,
}

impl RewrittenBody {
    /// A body of these pieces, in order.
    #[must_use]
    pub fn new(mut frames: Vec<Bytes>) -> Self {
        frames.retain(|frame| !frame.is_empty());
        let remaining = frames.iter().map(|frame| frame.len() as u64).sum();
        Self {
            frames: frames.into(),
            next: 0,
            remaining,
        }
    }

    /// The bytes that are still to be sent: before the first one, the `Content-Length`.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The pieces that are still to be sent.
    #[must_use]
    pub fn frames(&self) -> &[Bytes] {
        self.frames.get(self.next..).unwrap_or_default()
    }

    /// What is still to be sent as one buffer; copies unless it is a single piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.frames() {
            [] => Bytes::new(),
            [whole] => whole.clone(),
            frames => {
                let mut joined = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
                frames
                    .iter()
                    .for_each(|frame| joined.extend_from_slice(frame));
                joined.freeze()
            }
        }
    }
}

impl From<Bytes> for RewrittenBody {
    fn from(body: Bytes) -> Self {
        Self::new(vec![body])
    }
}

impl Body for RewrittenBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.frames.get(self.next).cloned();
        if let Some(frame) = &frame {
            self.next += 1;
            self.remaining -= frame.len() as u64;
        }
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.frames().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
