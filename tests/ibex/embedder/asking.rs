//! What is asked of an `/embeddings`, and what is taken from it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ibex::config::{AuthStyle, EmbedderConfig, UpstreamConfig};
use ibex::memory::embedder::{EmbedError, Embedder, HttpEmbedder};
use ibex::providers::client;
use serde_json::json;
use tokio::time::Instant;

use super::{alike, over, texts, vectors};
use crate::support::{Event, Script, Upstream};

const CANARY: &str = "heronfeather";

fn embedder(config: &EmbedderConfig) -> HttpEmbedder {
    let client = client(&UpstreamConfig::default()).unwrap();
    HttpEmbedder::new(config, client).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// The reason of a question and of a document, which must be the same and hold nothing of the text.
async fn reasons(script: Script) -> &'static str {
    let upstream = Upstream::playing(script).await;
    let embedder = embedder(&over(&upstream));
    let question = embedder.embed_query(CANARY, soon()).await.unwrap_err();
    let document = embedder.embed(&[CANARY]).await.unwrap_err();
    assert_eq!(question, document);
    assert!(!question.to_string().contains(CANARY));
    question.0
}

#[tokio::test]
async fn documents_go_in_batches_and_come_back_in_order() {
    let upstream = Upstream::start(|request| {
        let numbered = texts(request)
            .iter()
            .map(|text| vec![text.parse().expect("a number"), 1.0])
            .collect::<Vec<Vec<f32>>>();
        Script::new().json("200 OK", &vectors(&numbered))
    })
    .await;
    let config = EmbedderConfig {
        batch: 4,
        dimensions: Some(2),
        api_key: Some("sk-embed".to_owned()),
        ..over(&upstream)
    };
    let embedder = embedder(&config);
    let numbers: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let asked: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let found = embedder.embed(&asked).await.unwrap();
    for (number, vector) in (0u8..).zip(&found) {
        let number = f32::from(number);
        let length = number.hypot(1.0);
        assert!((vector[0] - number / length).abs() < 1e-6, "{number}");
        assert!((vector[1] - 1.0 / length).abs() < 1e-6);
    }
    let sizes: Vec<usize> = upstream
        .exchanges()
        .iter()
        .map(|exchange| texts(&exchange.request).len())
        .collect();
    assert_eq!(sizes, [4, 4, 2]);
    let request = &upstream.last().request;
    assert_eq!(request.path, "/v1/embeddings");
    assert_eq!(request.values("authorization"), ["Bearer sk-embed"]);
    assert_eq!(
        request.json(),
        json!({"model": "test-embed", "input": ["8", "9"], "encoding_format": "float", "dimensions": 2})
    );
    assert_eq!(embedder.model(), "http:test-embed/2");
}

#[tokio::test]
async fn a_key_may_go_in_azures_header_and_long_texts_are_cut() {
    let upstream = Upstream::start(alike).await;
    let config = EmbedderConfig {
        auth: AuthStyle::ApiKey,
        api_key: Some("sk-embed".to_owned()),
        max_chars: 5,
        ..over(&upstream)
    };
    embedder(&config).embed(&["größer als"]).await.unwrap();
    let request = &upstream.last().request;
    assert_eq!(request.values("api-key"), ["sk-embed"]);
    assert_eq!(request.values("authorization"), [""; 0]);
    assert_eq!(texts(request), ["größe"]);
}

#[tokio::test]
async fn a_question_is_asked_once_however_often_it_comes() {
    let go = Event::default();
    let held = go.clone();
    let upstream =
        Upstream::start(move |request| Script::new().wait(&held).send_all(alike(request))).await;
    let embedder = embedder(&over(&upstream));
    // Three at the same time, one after them, and another question.
    let together = async {
        tokio::join!(
            embedder.embed_query("tea?", soon()),
            embedder.embed_query("tea?", soon()),
            embedder.embed_query("tea?", soon())
        )
    };
    let (answers, ()) = tokio::join!(together, async {
        upstream.exchange(0).await;
        go.set();
    });
    assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok());
    embedder.embed_query("tea?", soon()).await.unwrap();
    assert_eq!(upstream.hits(), 1);
    embedder.embed_query("coffee?", soon()).await.unwrap();
    assert_eq!(upstream.hits(), 2);
}

#[tokio::test]
async fn broken_answers_are_refused_without_a_word_of_theirs() {
    let ok = |body: &str| Script::new().whole("200 OK", "", body);
    let one = |vector: &str| {
        ok(&format!(
            r#"{{"data":[{{"index":0,"embedding":{vector}}}]}}"#
        ))
    };
    let cases = [
        (
            ok("<html>heronfeather</html>"),
            "the embedder's answer is no list of embeddings",
        ),
        (
            one("[NaN]"),
            "the embedder's answer is no list of embeddings",
        ),
        (
            one("[0,0,0]"),
            "the embedder answered with a vector that has no direction",
        ),
        (
            ok(r#"{"data":[]}"#),
            "the embedder answered with another number of vectors",
        ),
        (
            Script::new().whole("401 Unauthorized", "", "heronfeather"),
            "the embedder does not take the key",
        ),
        (
            Script::new().whole("404 Not Found", "", ""),
            "the embedder knows no such model or path",
        ),
        (
            Script::new().whole(
                "302 Found",
                "location: http://127.0.0.1:9/heronfeather\r\n",
                "",
            ),
            "the embedder answered with an unexpected status",
        ),
        (
            Script::new().whole("400 Bad Request", "", "heronfeather is too long"),
            EmbedError::REFUSED.0,
        ),
        (
            Script::new()
                .chunked_head("")
                .repeat(crate::support::chunk([b' '; 4096]), 80)
                .hang(),
            "the embedder's answer broke off or is too long",
        ),
    ];
    for (script, expected) in cases {
        assert_eq!(reasons(script).await, expected);
    }
}

#[tokio::test]
async fn another_dimension_than_before_is_refused() {
    let asked = AtomicUsize::new(0);
    let upstream = Upstream::start(move |_| {
        let dimensions = 2 + asked.fetch_add(1, Ordering::Relaxed);
        Script::new().json("200 OK", &vectors(&[vec![1.0; dimensions]]))
    })
    .await;
    let embedder = embedder(&over(&upstream));
    embedder.embed(&["one"]).await.unwrap();
    let refused = embedder.embed(&["two"]).await.unwrap_err();
    assert_eq!(
        refused.0,
        "the embedder answered with vectors of another dimension"
    );
    let wanted = EmbedderConfig {
        dimensions: Some(3),
        ..over(&upstream)
    };
    let fixed = self::embedder(&wanted).embed(&["one"]).await;
    assert!(fixed.is_err(), "four dimensions are not three");
}

#[tokio::test]
async fn documents_are_asked_a_second_time_and_questions_are_not() {
    for status in ["429 Too Many Requests", "500 Oops", "503 Busy"] {
        let asked = AtomicUsize::new(0);
        let upstream = Upstream::start(move |request| {
            if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                Script::new().whole(status, "retry-after: 0\r\n", "")
            } else {
                alike(request)
            }
        })
        .await;
        let embedder = embedder(&over(&upstream));
        assert!(embedder.embed(&["one"]).await.is_ok(), "{status}");
        assert_eq!(upstream.hits(), 2);
        assert!(embedder.embed_query("one?", soon()).await.is_err());
        assert_eq!(upstream.hits(), 3);
    }
    // A long pause is not waited for.
    let busy = Script::new().whole("429 Too Many Requests", "retry-after: 3600\r\n", "");
    let upstream = Upstream::playing(busy).await;
    assert!(embedder(&over(&upstream)).embed(&["one"]).await.is_err());
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn nobody_there_is_an_error_like_any_other() {
    let config = EmbedderConfig {
        base_url: Some("http://127.0.0.1:9/v1".to_owned()),
        model: Some("test-embed".to_owned()),
        timeout_ms: 20_000,
        ..EmbedderConfig::default()
    };
    let refused = embedder(&config).embed_query("tea?", soon()).await;
    assert_eq!(refused.unwrap_err().0, "the embedder is out of reach");
}

#[tokio::test(start_paused = true)]
async fn silence_ends_with_the_time_for_it() {
    let upstream = Upstream::playing(Script::new().hang()).await;
    let config = EmbedderConfig {
        timeout_ms: 15,
        document_timeout_ms: 1_000,
        ..over(&upstream)
    };
    let embedder = embedder(&config);
    let began = Instant::now();
    let question = embedder.embed_query("tea?", soon()).await;
    assert_eq!(question, Err(EmbedError::TIMEOUT));
    assert_eq!(began.elapsed(), Duration::from_millis(15));
    let until = Instant::now() + Duration::from_millis(5);
    let question = embedder.embed_query("tea?", until).await;
    assert_eq!(question, Err(EmbedError::TIMEOUT));
    assert_eq!(Instant::now(), until);
    assert_eq!(embedder.embed(&["tea"]).await, Err(EmbedError::TIMEOUT));
}
