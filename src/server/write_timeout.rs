//! A connection whose writes must get on: a client that stops reading may not hold its slots and the provider's answer for ever.
//!
//! While the client takes nothing the answer's body is not polled, so no limit inside it can fire; this one stands below all of them.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream that fails with [`ErrorKind::TimedOut`] when a write has waited for longer than its limit without taking a byte.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Made by the first write that has to wait and used again by later ones: writes that succeed never touch a timer.
    alarm: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            alarm: None,
            waiting: false,
        }
    }

    /// Passes a result on; a pending one is an error once the alarm, set by the first of a row, has rung.
    fn timed<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = false;
            return polled;
        }
        let end = || Instant::now() + self.limit;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end())));
        if !self.waiting {
            alarm.as_mut().reset(end());
            self.waiting = true;
        }
        alarm.as_mut().poll(cx).map(|()| {
            Err(io::Error::new(
                ErrorKind::TimedOut,
                "the client has stopped reading",
            ))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.timed(polled, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.timed(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket's flush and shutdown never wait, and a flush that is ready says nothing of a write that is not.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::WriteTimeout;

    const LIMIT: Duration = Duration::from_secs(120);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_takes_nothing_for_the_limit_fails() {
        let (near, _far) = tokio::io::duplex(8);
        let mut stream = WriteTimeout::new(near, LIMIT);
        stream.write_all(b"12345678").await.unwrap();
        assert!(stream.alarm.is_none(), "writes that succeed set no timer");
        let began = Instant::now();
        let error = stream.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() >= LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_lives_as_long_as_it_takes_something() {
        let (near, mut far) = tokio::io::duplex(1);
        let mut stream = WriteTimeout::new(near, LIMIT);
        let began = Instant::now();
        let reading = async {
            for _ in 0..10 {
                tokio::time::sleep(LIMIT.saturating_sub(Duration::from_secs(1))).await;
                far.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[7; 10]), reading);
        written.unwrap();
        assert!(began.elapsed() > LIMIT * 9);
    }
}
