//! Answers pass byte for byte, however they are cut, and their usage is counted all the same.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;

use super::{CHAT, chat, counted_tokens, metric, released, streamed};
use crate::support::{Script, TestApp, Upstream, chunk, completion};

const OWLS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\u{96ea}\u{5c71}\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\u{e9} \u{1f989} \u{bc14}\u{b2e4}\"}}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}\n\n\
    data: [DONE]\n\n";

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// The ways in which one body can be put on the wire: cut by a close or in chunks, in one piece or byte by byte.
fn framings(headers: &str, body: &[u8]) -> Vec<Script> {
    let closed = format!("HTTP/1.1 200 OK\r\n{headers}connection: close\r\n\r\n");
    let mut byte_chunks = Vec::new();
    for byte in body.chunks(1) {
        byte_chunks.extend_from_slice(&chunk(byte));
    }
    vec![
        Script::new()
            .send(closed.clone())
            .send(body.to_vec())
            .close(),
        Script::new().send(closed).bytewise(body.to_vec()).close(),
        Script::new().chunked_head(headers).chunk(body).last_chunk(),
        Script::new()
            .chunked_head(headers)
            .send(byte_chunks)
            .last_chunk(),
        Script::new().whole("200 OK", headers, body),
    ]
}

async fn assert_identical(what: &str, headers: &str, body: &[u8], tokens: (u64, u64)) {
    for (i, script) in framings(headers, body).into_iter().enumerate() {
        let upstream = Upstream::playing(script).await;
        let app = TestApp::start(&upstream.url()).await;
        let request = if headers.contains("event-stream") {
            streamed()
        } else {
            chat()
        };
        let answer = app.client().post(CHAT, &request).await;
        assert_eq!(answer.status, StatusCode::OK, "{what}, framing {i}");
        assert!(
            answer.body == body,
            "{what}, framing {i}: {:?}",
            answer.body
        );
        assert!(!answer.cut, "{what}, framing {i}");
        assert_eq!(counted_tokens(&app).await, tokens, "{what}, framing {i}");
        assert_eq!(upstream.hits(), 1);
        released(&app).await;
    }
}

const EVENTS: &str = "content-type: text/event-stream\r\n";

/// SSE-01.
#[tokio::test]
async fn characters_cut_anywhere_arrive_whole() {
    assert_identical("owls", EVENTS, OWLS.as_bytes(), (7, 3)).await;
}

/// SSE-07.
#[tokio::test]
async fn chunks_of_every_shape_pass_and_usage_is_counted_once() {
    let stream = "data: {\"choices\":[]}\n\n\
        data: {\"object\":\"x\"}\n\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\"}},{\"index\":0,\"delta\":{}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n\
        data: [DONE]\n\n";
    assert_identical("shapes", EVENTS, stream.as_bytes(), (5, 2)).await;
}

#[tokio::test]
async fn line_ends_comments_and_missing_spaces_are_kept() {
    let crlf = OWLS.replace('\n', "\r\n");
    assert_identical("crlf", EVENTS, crlf.as_bytes(), (7, 3)).await;
    let odd = format!(
        ": ping\n\n:\nretry: 10\nid: 1\nevent: message\n{}",
        OWLS.replace("data: ", "data:")
    );
    assert_identical("comments", EVENTS, odd.as_bytes(), (7, 3)).await;
}

#[tokio::test]
async fn a_stream_without_its_end_mark_is_given_none() {
    let open = OWLS.replace("data: [DONE]\n\n", "");
    assert_identical("no [DONE]", EVENTS, open.as_bytes(), (7, 3)).await;
    let unfinished = open.trim_end();
    assert_identical("no blank line", EVENTS, unfinished.as_bytes(), (7, 3)).await;
}

#[tokio::test]
async fn compressed_answers_pass_as_they_are() {
    let headers = format!("{EVENTS}content-encoding: gzip\r\n");
    assert_identical("zipped events", &headers, &zipped(OWLS.as_bytes()), (7, 3)).await;
    let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    let document = zipped(completion().to_string().as_bytes());
    assert_identical("a zipped document", headers, &document, (7, 3)).await;
}

#[tokio::test]
async fn a_document_passes_as_it_is() {
    let document = format!("\r\n {}\n", completion());
    let headers = "content-type: application/json; charset=utf-8\r\n";
    assert_identical("a document", headers, document.as_bytes(), (7, 3)).await;
}

/// SSE-06.
#[tokio::test]
async fn an_error_inside_a_stream_passes_and_counts_as_a_failure() {
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n\
        data: {\"error\":{\"message\":\"engine overloaded\",\"type\":\"server_error\",\"code\":\"overloaded\"}}\n\n\
        data: [DONE]\n\n";
    let upstream = Upstream::playing(Script::new().events_head().chunk(stream).last_chunk()).await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client().post(CHAT, &streamed()).await;
    assert_eq!((answer.body, answer.cut), (stream.into(), false));
    assert_eq!(upstream.hits(), 1, "no retry");
    let ended = |result| format!("ibex_answers_total{{result=\"{result}\"}}");
    assert_eq!(metric(&app, &ended("error_event")).await, 1);
    assert_eq!(metric(&app, &ended("complete")).await, 0);
}

/// SSE-13, the whole line.
#[tokio::test]
async fn a_line_of_megabytes_passes_whole_and_its_usage_is_read() {
    let picture = "QUJD".repeat(3 << 18);
    let stream = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{picture}\"}}}}],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}}}\n\ndata: [DONE]\n\n"
    );
    let upstream = Upstream::playing(Script::new().events_head().chunk(&stream).last_chunk()).await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client().post(CHAT, &streamed()).await;
    assert!(answer.body == stream, "the same bytes");
    assert_eq!(counted_tokens(&app).await, (7, 3));
}

#[tokio::test]
async fn what_a_stream_has_said_arrives_before_the_rest_is_there() {
    let go = crate::support::Event::default();
    let upstream = Upstream::playing(
        Script::new()
            .events_head()
            .chunk("data: 1\n\n")
            .wait(&go)
            .chunk("data: 2\n\n")
            .last_chunk(),
    )
    .await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = super::raw::Raw::connect(&app).await;
    client
        .send(super::raw::post(&app, CHAT, streamed().to_string()))
        .await;
    client.read_to(b"data: 1\n\n").await;
    assert!(!go.is_set());
    go.set();
    client.read_to(b"0\r\n\r\n").await;
}

/// The end that a provider announced leaves no room for the event: the announcement must not reach the client.
#[tokio::test]
async fn a_stream_cut_shortly_before_its_announced_end_is_told_whole() {
    let part = "data: {\"choices\":[]}\n\n";
    let upstream = Upstream::playing(
        Script::new()
            .send(format!(
                "HTTP/1.1 200 OK\r\n{EVENTS}content-length: {}\r\n\r\n{part}",
                part.len() + 5
            ))
            .close(),
    )
    .await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client().post(CHAT, &streamed()).await;
    assert!(answer.cut);
    let text = String::from_utf8(answer.body.to_vec()).expect("text");
    assert!(text.starts_with(part) && text.ends_with("}\n\n"), "{text}");
    assert!(text.contains("PROVIDER_UNAVAILABLE"), "{text}");
}

/// Plain text inside a compressed stream would be read as garbage.
#[tokio::test]
async fn a_compressed_stream_that_breaks_off_is_cut_and_nothing_is_added() {
    let packed = zipped(OWLS.as_bytes());
    let part = &packed[..packed.len() / 2];
    let headers = format!("{EVENTS}content-encoding: gzip\r\n");
    let upstream =
        Upstream::playing(Script::new().chunked_head(&headers).chunk(part).close()).await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client().post(CHAT, &streamed()).await;
    assert!(answer.cut);
    assert!(part.starts_with(&answer.body), "{:?}", answer.body);
    released(&app).await;
}

/// An upstream that dies in mid-stream: one error event, then a cut, never a polite end.
#[tokio::test]
async fn a_provider_that_dies_in_mid_stream_is_told_and_the_connection_cut() {
    let part = "data: {\"choices\":[]}\n\ndata: {\"half";
    for script in [
        Script::new().events_head().chunk(part).close(),
        Script::new().events_head().chunk(part).reset(),
        Script::new()
            .send(format!(
                "HTTP/1.1 200 OK\r\n{EVENTS}content-length: 5000\r\n\r\n{part}"
            ))
            .close(),
    ] {
        let upstream = Upstream::playing(script).await;
        let app = TestApp::start(&upstream.url()).await;
        let answer = app.client().post(CHAT, &streamed()).await;
        assert!(answer.cut);
        let text = String::from_utf8(answer.body.to_vec()).expect("text");
        let added = text.strip_prefix(part).expect("what came is passed on");
        let event = added.trim().strip_prefix("data: ").expect("one event");
        let error: serde_json::Value = serde_json::from_str(event).expect("JSON");
        assert_eq!(error["error"]["code"], "PROVIDER_UNAVAILABLE");
        assert!(!text.contains("[DONE]"));
        assert_eq!(
            metric(&app, "ibex_answers_total{result=\"upstream_error\"}").await,
            1
        );
        released(&app).await;
    }
}

#[tokio::test]
async fn a_document_that_breaks_off_is_cut_and_nothing_is_added() {
    let part = "{\"choices\": [";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    for script in [
        Script::new()
            .send(format!("{head}content-length: 500\r\n\r\n{part}"))
            .close(),
        Script::new()
            .chunked_head("content-type: application/json\r\n")
            .chunk(part)
            .reset(),
    ] {
        let upstream = Upstream::playing(script).await;
        let app = TestApp::start(&upstream.url()).await;
        let answer = app.client().post(CHAT, &chat()).await;
        assert!(answer.cut);
        assert!(part.as_bytes().starts_with(&answer.body));
        released(&app).await;
    }
}
