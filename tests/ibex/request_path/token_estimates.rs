//! What a request counts at a token rate: text, pictures and the answer it may get.

use ibex::config::ModelConfig;
use serde_json::{Value, json};

use super::{CHAT, app_with, chat};
use crate::support::{Answer, TestApp, Upstream};

const TPM: u32 = 1_000_000;

/// The tokens that a request counts: what is gone of a fresh minute.
async fn counted(upstream: &Upstream, path: &str, body: &Value) -> u32 {
    let app: TestApp = app_with(upstream, |config| {
        config.rate_limit.token.tpm = Some(TPM);
        config.models.push(ModelConfig {
            pattern: "terse".to_owned(),
            provider: None,
            upstream_model: None,
            context_window: None,
            max_output_tokens: Some(100),
            tokenizer: None,
            system_role: None,
            recall: None,
        });
    })
    .await;
    let answer: Answer = app.client().post(path, body).await;
    assert_eq!(answer.status, 200);
    let left: u32 = answer
        .header("x-ratelimit-remaining-tokens")
        .parse()
        .expect("a number");
    TPM - left
}

#[tokio::test]
async fn a_picture_counts_its_flat_figure_and_not_its_bytes() {
    let upstream = Upstream::echo_ok().await;
    let image = "iVBOR".repeat(200_000);
    let body = json!({"model": "gpt-4o", "max_tokens": 1, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "hi"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{image}")}}
    ]}]});
    let counted = counted(&upstream, CHAT, &body).await;
    assert!((85..5_000).contains(&counted), "{counted}");
}

#[tokio::test]
async fn an_answer_counts_what_it_may_be() {
    let upstream = Upstream::echo_ok().await;
    let with = |model: &str, fields: Value| {
        let mut body = chat();
        body["model"] = model.into();
        for (name, value) in fields.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    };
    let prompt = counted(&upstream, CHAT, &with("gpt-4o", json!({"max_tokens": 0}))).await;
    for (body, answer) in [
        (with("gpt-4o", json!({"max_tokens": 700, "n": 3})), 2_100),
        (with("gpt-4o", json!({})), 4_096),
        (with("terse", json!({})), 100),
    ] {
        assert_eq!(
            counted(&upstream, CHAT, &body).await,
            prompt + answer,
            "{body}"
        );
    }
    let tools =
        json!([{"type": "function", "function": {"name": "f", "description": "d".repeat(300)}}]);
    let tooled = with("gpt-4o", json!({"max_tokens": 0, "tools": tools}));
    assert!(counted(&upstream, CHAT, &tooled).await > prompt + 100);
    for (path, name) in [
        ("/v1/completions", "max_tokens"),
        ("/v1/responses", "max_output_tokens"),
    ] {
        let body = json!({"model": "gpt-4o", name: 900});
        let thirds = u32::try_from(body.to_string().len().div_ceil(3)).expect("short");
        assert_eq!(counted(&upstream, path, &body).await, thirds + 900);
    }
}
