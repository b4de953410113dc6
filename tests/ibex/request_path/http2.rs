//! The same path for clients that speak HTTP/2 from the first byte.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use super::{CHAT, app_with, chat, metric, released, streamed};
use crate::support::{Script, TestApp, Upstream, completion, soon};

async fn connect(app: &TestApp) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(app.address).await.expect("it listens");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn post(
    sender: &mut SendRequest<Full<Bytes>>,
    app: &TestApp,
    body: &Value,
) -> Response<Incoming> {
    let request = Request::post(format!("http://{}{CHAT}", app.address))
        .header("authorization", format!("Bearer {}", app.token))
        .header("x-ibex-agent-id", app.agent.to_string())
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))
        .expect("a request");
    soon("an answer", sender.send_request(request))
        .await
        .expect("an answer")
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let mut sender = connect(&app).await;
    let (mut one, mut two) = (sender.clone(), sender.clone());
    let (chat_body, stream_body) = (chat(), streamed());
    let (whole, events) = tokio::join!(
        post(&mut one, &app, &chat_body),
        post(&mut two, &app, &stream_body)
    );
    let whole = whole.into_body().collect().await.expect("whole").to_bytes();
    assert_eq!(whole, completion().to_string());
    let events = events.into_body().collect().await.expect("whole");
    assert!(events.to_bytes().ends_with(b"data: [DONE]\n\n"));
    let refused = post(&mut sender, &app, &serde_json::json!({})).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(upstream.hits(), 2);
    for exchange in upstream.exchanges() {
        assert_eq!(exchange.request.values("host").len(), 1);
        assert_eq!(exchange.request.values("content-length").len(), 1);
    }
    released(&app).await;
}

#[tokio::test]
async fn a_stream_that_the_client_drops_ends_the_call() {
    let upstream = Upstream::playing(Script::new().events_head().chunk("data: 1\n\n").hang()).await;
    let app = app_with(&upstream, |config| {
        config.rate_limit.token.streams = Some(1)
    })
    .await;
    let mut sender = connect(&app).await;
    for round in 0..2 {
        let mut body = post(&mut sender, &app, &streamed()).await.into_body();
        let first = body.frame().await.expect("a frame").expect("a frame");
        assert_eq!(first.into_data().expect("data"), "data: 1\n\n");
        drop(body);
        upstream.exchange(round).await.gone.wait().await;
        released(&app).await;
    }
    assert_eq!(
        metric(&app, "ibex_answers_total{result=\"client_gone\"}").await,
        2
    );
}

#[tokio::test]
async fn a_provider_that_dies_in_mid_stream_is_told() {
    let upstream =
        Upstream::playing(Script::new().events_head().chunk("data: 1\n\n").reset()).await;
    let app = TestApp::start(&upstream.url()).await;
    let mut sender = connect(&app).await;
    let mut body = post(&mut sender, &app, &streamed()).await.into_body();
    let (mut text, mut cut) = (String::new(), false);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let data = frame.into_data().expect("data");
                text.push_str(std::str::from_utf8(&data).expect("text"));
            }
            Err(_) => {
                cut = true;
                break;
            }
        }
    }
    assert!(cut, "{text}");
    assert!(text.contains("PROVIDER_UNAVAILABLE"), "{text}");
    released(&app).await;
}
