//! The request path over real sockets: order, refusals, framing, streams, limits.

use serde_json::json;

use crate::support::{TestApp, Upstream};

#[tokio::test]
async fn a_chat_request_reaches_the_provider_and_its_answer_comes_back() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]});
    let answer = app.client().post("/v1/chat/completions", &body).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "fine");
    assert_eq!(upstream.hits(), 1);
}
