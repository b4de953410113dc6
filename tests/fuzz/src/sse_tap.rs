//! A provider's answer on its way through the relay and its tap.
//!
//! The first byte chooses encoding, kind and end of the answer, the second where it is cut; the rest is the answer.

use std::collections::VecDeque;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderValue, header};
use http_body::{Body, Frame, SizeHint};
use ibex::openai::sse::{ContentCoding, DEFAULT_CAP, JsonTap, TapReport, UsageTap};
use ibex::openai::{Tap, is_model_name, named_model};
use ibex::request::relay::{Ending, Patience, Relay};
use ibex::telemetry::StreamEnd;
use tokio::runtime::{Builder, Runtime};

use super::input::{Input, pieces};
use super::reference;

/// Below this nothing is ever lost: neither the cap of one event nor the bound on what an answer may inflate to is near.
const SMALL: usize = 256 << 10;

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// In the ordinary way.
    Complete,
    /// The connection breaks.
    Broken,
    /// Nothing more comes.
    Silent,
    /// The client goes away after this many pieces.
    Left(usize),
}

/// What the fuzzer chose.
struct Shape {
    coding: ContentCoding,
    /// An event stream, or one JSON document.
    events: bool,
    end: End,
    /// Its length is announced.
    declared: bool,
}

/// Runs the harness.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let (chosen, seed) = (input.byte(), input.byte());
    let text = input.rest();
    let coding = [
        ContentCoding::Identity,
        ContentCoding::Gzip,
        ContentCoding::Deflate,
        ContentCoding::Unknown,
    ][usize::from(chosen & 3)];
    let shape = Shape {
        coding,
        events: chosen & 4 == 0,
        end: [
            End::Complete,
            End::Broken,
            End::Silent,
            End::Left(usize::from(seed >> 4)),
        ][usize::from(chosen >> 4 & 3)],
        declared: chosen & 64 != 0,
    };
    let packed = (chosen & 8 != 0).then(|| compressed(coding, text, chosen & 128 != 0));
    let answer = packed.as_deref().unwrap_or(text);
    plain(text, seed);
    let seen = cut_anywhere(&shape, answer, seed);
    if packed.is_some() && coding != ContentCoding::Unknown && text.len() < SMALL {
        assert_eq!(
            seen,
            report(ContentCoding::Identity, shape.events, DEFAULT_CAP, &[text]),
            "a compressed answer says what the plain one says"
        );
    }
    relayed(&shape, answer, seed, seen);
}

fn compressed(coding: ContentCoding, text: &[u8], raw: bool) -> Vec<u8> {
    let level = Compression::fast();
    let written = match coding {
        ContentCoding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish())
        }
        // Two formats go by this name.
        ContentCoding::Deflate if raw => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish())
        }
        ContentCoding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish())
        }
        ContentCoding::Identity | ContentCoding::Unknown => Ok(text.to_vec()),
    };
    written.expect("writing into memory")
}

fn report(coding: ContentCoding, events: bool, cap: usize, pieces: &[&[u8]]) -> TapReport {
    if events {
        let mut tap = UsageTap::new(coding, cap);
        pieces.iter().for_each(|piece| tap.feed(piece));
        tap.finish()
    } else {
        let mut tap = JsonTap::new(coding, cap);
        pieces.iter().for_each(|piece| tap.feed(piece));
        tap.finish()
    }
}

/// A plain stream against the specification, and under small caps.
fn plain(text: &[u8], seed: u8) {
    let events = reference::events(text);
    let whole = report(ContentCoding::Identity, true, DEFAULT_CAP, &[text]);
    assert!(!whole.lost);
    assert_eq!(whole.events, events.len() as u64);
    let done = events.iter().any(|event| event.trim_ascii() == b"[DONE]");
    assert_eq!(whole.saw_done, done);
    let longest = events.iter().map(Vec::len).max().unwrap_or(0);
    let cut = pieces(text, seed);
    for cap in [8, 64, 700] {
        for pieces in [&[text][..], &cut] {
            let bounded = report(ContentCoding::Identity, true, cap, pieces);
            assert!(bounded.lost || longest <= cap, "held beyond the cap");
            assert!(!bounded.lost || text.len() > cap, "lost without a reason");
            assert!(bounded.lost || bounded == whole, "a cap changes nothing");
        }
    }
    if let Some(name) = named_model(text) {
        assert!(is_model_name(&name));
    }
}

/// What is seen does not depend on where the network cut the answer.
fn cut_anywhere(shape: &Shape, answer: &[u8], seed: u8) -> TapReport {
    let see = |pieces: &[&[u8]]| report(shape.coding, shape.events, DEFAULT_CAP, pieces);
    let whole = see(&[answer]);
    let mut cuts = vec![pieces(answer, seed)];
    if answer.len() < 4_096 {
        cuts.push(answer.chunks(1).collect());
    }
    for cut in cuts {
        let seen = see(&cut);
        // How much may come out is measured by what has gone in, so what inflates to more than that may be lost at one cut only.
        let bomb = shape.coding != ContentCoding::Identity
            && (seen.lost || whole.lost)
            && answer.len() > 1_024;
        assert!(seen == whole || bomb, "{seen:?} is not {whole:?}");
    }
    whole
}

/// A provider's body as it arrives.
struct Arriving {
    pieces: VecDeque<Bytes>,
    left: u64,
    end: End,
    declared: bool,
}

#[derive(Debug)]
struct Broke;

impl Body for Arriving {
    type Data = Bytes;
    type Error = Broke;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broke>>> {
        let this = self.get_mut();
        if let Some(piece) = this.pieces.pop_front() {
            this.left -= piece.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match this.end {
            End::Complete | End::Left(_) => Poll::Ready(None),
            End::Broken => Poll::Ready(Some(Err(Broke))),
            // Nobody is woken: only the relay's own alarm ends this.
            End::Silent => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.declared && self.left == 0 && !matches!(self.end, End::Broken | End::Silent)
    }

    fn size_hint(&self) -> SizeHint {
        if self.declared {
            SizeHint::with_exact(self.left)
        } else {
            SizeHint::default()
        }
    }
}

/// How the relay said that it ended.
type Told = Arc<Mutex<Vec<(StreamEnd, TapReport)>>>;

struct Tell(Told);

impl Ending for Tell {
    fn ended(&mut self, end: StreamEnd, tap: TapReport) {
        self.0.lock().expect("no panic before").push((end, tap));
    }
}

thread_local! {
    /// Time stands still in it until nothing else is left to do. Never dropped: a runtime may not be at the end of a thread.
    static PAUSED: ManuallyDrop<Runtime> = ManuallyDrop::new(paused());
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

/// The relay passes every byte on, adds one error event to a plain stream that broke, and tells the end once.
fn relayed(shape: &Shape, answer: &[u8], seed: u8, seen: TapReport) {
    let told = Told::default();
    let tellable = shape.events && shape.coding == ContentCoding::Identity;
    let (out, failed) = PAUSED
        .with(|runtime| runtime.block_on(through(shape, answer, seed, (tellable, told.clone()))));
    let told = told.lock().expect("no panic before");
    let [(end, tap)] = told[..] else {
        panic!("the end was told {} times", told.len());
    };
    if let End::Left(_) = shape.end {
        assert!(answer.starts_with(&out));
        let whole = out.len() == answer.len();
        assert!(end == StreamEnd::ClientGone || whole, "{end:?}");
        return;
    }
    assert!(out.starts_with(answer), "bytes out are bytes in");
    assert!(
        tap == seen || tap.lost || seen.lost,
        "{tap:?} is not {seen:?}"
    );
    let added = &out[answer.len()..];
    let over = shape.declared && answer.is_empty() && shape.end == End::Complete;
    match shape.end {
        End::Complete | End::Left(_) => {
            let expected = if tap.error_event {
                StreamEnd::ErrorEvent
            } else {
                StreamEnd::Complete
            };
            assert_eq!((end, failed, added), (expected, false, &b""[..]), "{over}");
        }
        End::Broken => assert_eq!((end, failed), (StreamEnd::UpstreamError, true)),
        End::Silent => assert_eq!((end, failed), (StreamEnd::IdleTimeout, true)),
    }
    if failed && tellable {
        let mut events = reference::events(&out);
        let last = events.pop().expect("an error event");
        assert_eq!(
            events,
            reference::events(answer),
            "a half-sent event is closed first"
        );
        let error: serde_json::Value = serde_json::from_slice(&last).expect("JSON");
        assert!(error["error"]["code"].is_string(), "{error}");
    } else {
        assert_eq!(added, b"");
    }
}

/// What a client reads, and whether its connection was cut.
async fn through(
    shape: &Shape,
    answer: &[u8],
    seed: u8,
    (tellable, told): (bool, Told),
) -> (Vec<u8>, bool) {
    let arriving = Arriving {
        pieces: pieces(answer, seed)
            .into_iter()
            .map(Bytes::copy_from_slice)
            .collect(),
        left: answer.len() as u64,
        end: shape.end,
        declared: shape.declared,
    };
    let mut headers = HeaderMap::new();
    let name = match shape.coding {
        ContentCoding::Identity => None,
        ContentCoding::Gzip => Some("gzip"),
        ContentCoding::Deflate => Some("deflate"),
        ContentCoding::Unknown => Some("br"),
    };
    headers.extend(name.map(|name| (header::CONTENT_ENCODING, HeaderValue::from_static(name))));
    let patience = Patience {
        idle: Duration::from_secs(30),
        total: None,
    };
    let tap = Tap::new(shape.events, &headers);
    let mut relay = Relay::new(arriving, tellable, tap, patience, Tell(told));
    let (mut out, mut taken) = (Vec::new(), 0);
    while !relay.is_end_stream() {
        if shape.end == End::Left(taken) {
            break;
        }
        taken += 1;
        let next = std::future::poll_fn(|cx| Pin::new(&mut relay).poll_frame(cx)).await;
        match next {
            Some(Ok(frame)) => out.extend(frame.into_data().into_iter().flatten()),
            Some(Err(_)) => return (out, true),
            None => break,
        }
    }
    (out, false)
}
