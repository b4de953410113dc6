//! A client that stops reading in the middle of an answer does not keep what its request holds.

use std::time::Duration;

use super::raw::{self, Raw};
use super::{CHAT, app_with, jump, released, settled, streamed};
use crate::support::{Script, Upstream, chunk};

#[tokio::test]
async fn a_client_that_stops_reading_is_ended_and_releases_everything() {
    let piece = chunk(vec![b'x'; 64 << 10]);
    let upstream = Upstream::playing(
        Script::new()
            .events_head()
            .repeat(piece, 1_024)
            .last_chunk(),
    )
    .await;
    let app = app_with(&upstream, |config| config.server.write_timeout_ms = 5_000).await;
    let mut client = Raw::narrow(&app).await;
    client
        .send(raw::post(&app, CHAT, streamed().to_string()))
        .await;
    let exchange = upstream.exchange(0).await;
    // On the test's one thread everybody who can go on does so between two yields; when nobody has for long, nobody can.
    let (mut still, mut written) = (0, 0);
    while still < 1_000 {
        tokio::task::yield_now().await;
        still = if exchange.written() == written {
            still + 1
        } else {
            0
        };
        written = exchange.written();
    }
    jump(Duration::from_millis(4_000)).await;
    settled().await;
    assert!(app.app.slots.taken() > 0, "not before its time");
    assert!(!exchange.gone.is_set(), "not before its time");
    jump(Duration::from_millis(2_000)).await;
    released(&app).await;
    exchange.gone.wait().await;
    client.closed().await;
}
