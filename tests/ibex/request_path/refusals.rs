//! Every refusal before the handoff: its status, its code, and no provider call.

use bytes::Bytes;
use http::{Method, StatusCode};
use ibex::auth::Permissions;
use ibex::config::{Effect, RuleConfig};
use ibex::ids::{AgentId, OrgId};
use ibex::store::{AgentStatus, IdentityStore, OrgStatus};
use serde_json::json;

use super::raw::{self, Raw};
use super::{CHAT, app_with, assert_refused, assert_untouched, chat, metric, released};
use crate::support::{TestApp, Upstream};

#[tokio::test]
async fn credentials_that_prove_nothing() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let unknown = format!("ibex_pat_{}_{}", uuid::Uuid::new_v4(), "A".repeat(43));
    for (token, code) in [
        ("", "MISSING_TOKEN"),
        ("sk-upstream-invented", "INVALID_TOKEN"),
        (unknown.as_str(), "INVALID_TOKEN"),
        ("eyJhbGciOiJub25lIn0.e30.", "INVALID_TOKEN"),
    ] {
        for path in [CHAT, "/v1/embeddings", "/v1/completions"] {
            let answer = app
                .client_with(token, Some(app.agent))
                .post(path, &chat())
                .await;
            assert_refused(path, &answer, 401, code);
        }
        for path in ["/v1/models", "/v1/models/gpt-4o"] {
            let answer = app.client_with(token, Some(app.agent)).get(path).await;
            assert_refused(path, &answer, 401, code);
        }
    }
    let revoked = app.mint(app.org, None, None, Permissions::all()).await;
    let id = app.store.tokens(app.org).await.expect("tokens");
    let id = id.last().expect("the newest").id;
    app.store
        .revoke_token(id, jiff::Timestamp::UNIX_EPOCH)
        .await
        .expect("revoked");
    let answer = app
        .client_with(&revoked, Some(app.agent))
        .post(CHAT, &chat())
        .await;
    assert_refused("revoked", &answer, 401, "INVALID_TOKEN");
    assert_untouched("a 401", &upstream);
}

#[tokio::test]
async fn agents_that_may_not_be_acted_for() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client_with(&app.token, None).post(CHAT, &chat()).await;
    assert_refused("no agent", &answer, 400, "MISSING_AGENT_ID");
    let (other_org, foreign) = (OrgId::new(), AgentId::new());
    app.create_org(other_org).await;
    app.create_agent(other_org, foreign).await;
    let mut texts = Vec::new();
    for agent in [foreign, AgentId::new()] {
        let answer = app
            .client_with(&app.token, Some(agent))
            .post(CHAT, &chat())
            .await;
        assert_refused("a foreign agent", &answer, 403, "AGENT_NOT_AUTHORIZED");
        texts.push(answer.json()["error"]["message"].clone());
    }
    assert_eq!(texts[0], texts[1], "foreign and unknown read the same");
    let paused = AgentId::new();
    app.create_agent(app.org, paused).await;
    app.store
        .set_agent_status(app.org, paused, AgentStatus::Paused)
        .await
        .expect("paused");
    let answer = app
        .client_with(&app.token, Some(paused))
        .post(CHAT, &chat())
        .await;
    assert_refused("a paused agent", &answer, 403, "AGENT_SUSPENDED");
    let bound = app
        .mint(app.org, Some(app.agent), None, Permissions::all())
        .await;
    let answer = app
        .client_with(&bound, Some(paused))
        .post(CHAT, &chat())
        .await;
    assert_refused("another agent", &answer, 403, "AGENT_NOT_AUTHORIZED");
    assert_untouched("a foreign agent", &upstream);
}

#[tokio::test]
async fn permissions_that_are_not_held() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    for held in [
        Permissions::NONE,
        Permissions::MEMORY_READ,
        Permissions::SESSION_CREATE.with(Permissions::SESSION_READ),
    ] {
        let token = app.mint(app.org, None, None, held).await;
        let client = app.client_with(&token, Some(app.agent));
        let answer = client.post(CHAT, &chat()).await;
        assert_refused("permissions", &answer, 403, "INSUFFICIENT_PERMISSIONS");
    }
    let token = app.mint(app.org, None, None, Permissions::NONE).await;
    let client = app.client_with(&token, Some(app.agent));
    for path in ["/v1/embeddings", "/v1/completions"] {
        let answer = client.post(path, &chat()).await;
        assert_refused(path, &answer, 403, "INSUFFICIENT_PERMISSIONS");
    }
    let answer = client.get("/v1/models").await;
    assert_refused("models", &answer, 403, "INSUFFICIENT_PERMISSIONS");
    let user = app
        .client_with(&token, Some(app.agent))
        .header("x-ibex-user-id", "u-1")
        .post(CHAT, &chat())
        .await;
    assert_refused("a user", &user, 403, "INSUFFICIENT_PERMISSIONS");
    assert_untouched("a missing permission", &upstream);
}

#[tokio::test]
async fn a_suspended_organisation() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    app.store
        .set_org_status(app.org, OrgStatus::Suspended)
        .await
        .expect("suspended");
    let answer = app.client().post(CHAT, &chat()).await;
    assert_refused("suspended", &answer, 403, "ORG_SUSPENDED");
    assert_untouched("a suspended organisation", &upstream);
}

#[tokio::test]
async fn a_denied_model_on_every_route_that_names_one() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, |config| {
        config.policy.rules.push(RuleConfig {
            org: None,
            priority: 1,
            model: "gpt-4o".to_owned(),
            effect: Effect::Deny,
            context: None,
        });
    })
    .await;
    for path in [CHAT, "/v1/embeddings", "/v1/completions"] {
        let answer = app.client().post(path, &chat()).await;
        assert_refused(path, &answer, 403, "MODEL_NOT_ALLOWED");
        assert_eq!(answer.json()["error"]["param"], "model");
    }
    let answer = app.client().get("/v1/models/gpt-4o").await;
    assert_refused("the model", &answer, 403, "MODEL_NOT_ALLOWED");
    assert_untouched("a denied model", &upstream);
}

#[tokio::test]
async fn bodies_that_are_no_chat_request() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    for (body, code) in [
        ("", "INVALID_JSON"),
        ("{", "INVALID_JSON"),
        ("[]", "INVALID_JSON"),
        ("{} {}", "INVALID_JSON"),
        ("{\"model\":\"gpt-4o\"}", "VALIDATION_ERROR"),
        (
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "VALIDATION_ERROR",
        ),
        ("{\"model\":\"m\",\"messages\":[]}", "VALIDATION_ERROR"),
        (
            "{\"model\":\"m\",\"model\":\"n\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "VALIDATION_ERROR",
        ),
        (
            "{\"model\":\"m\",\"stream\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "VALIDATION_ERROR",
        ),
        (
            "{\"model\":\"m\",\"temperature\":3,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "VALIDATION_ERROR",
        ),
    ] {
        let answer = app.client().post_raw(CHAT, body).await;
        assert_refused(body, &answer, 400, code);
    }
    let orphan = json!({"model": "gpt-4o", "messages": [
        {"role": "user", "content": "x"},
        {"role": "tool", "tool_call_id": "call_1", "content": "y"},
    ]});
    let answer = app.client().post(CHAT, &orphan).await;
    assert_refused("an orphaned tool result", &answer, 400, "VALIDATION_ERROR");
    assert_eq!(answer.json()["error"]["param"], "messages[1].tool_call_id");
    let unanswered = json!({"model": "gpt-4o", "messages": [
        {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "user", "content": "x"},
    ]});
    let answer = app.client().post(CHAT, &unanswered).await;
    assert_refused("an unanswered tool call", &answer, 400, "VALIDATION_ERROR");
    for path in ["/v1/embeddings", "/v1/completions"] {
        let answer = app.client().post_raw(path, "[]").await;
        assert_refused(path, &answer, 400, "INVALID_JSON");
    }
    assert_untouched("a 400", &upstream);
    let refused = metric(
        &app,
        "ibex_refusals_total{stage=\"validate\",code=\"VALIDATION_ERROR\"}",
    )
    .await;
    assert_eq!(refused, 8, "refusals are counted under their stage");
    released(&app).await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_no_json() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, |config| config.server.max_body_bytes = 1_000).await;
    let large = super::chat_of(1_001);
    for path in [CHAT, "/v1/embeddings", "/v1/completions"] {
        let answer = app.client().post_raw(path, large.clone()).await;
        assert_refused(path, &answer, 413, "PAYLOAD_TOO_LARGE");
        let mut client = Raw::connect(&app).await;
        client
            .send(raw::head(&app, path, "transfer-encoding: chunked\r\n"))
            .await;
        client.send(crate::support::chunk(&large)).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (413, "PAYLOAD_TOO_LARGE")
        );
    }
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-type", "multipart/form-data; boundary=x"),
        ("content-encoding", "gzip"),
        ("content-encoding", "br"),
    ] {
        let answer = app
            .client()
            .header(name, value)
            .post_raw(CHAT, chat().to_string())
            .await;
        assert_refused(value, &answer, 415, "UNSUPPORTED_MEDIA_TYPE");
    }
    assert_untouched("a 413 or 415", &upstream);
    let fits = app
        .client()
        .header("content-encoding", "identity")
        .header("content-type", "Application/JSON; charset=utf-8")
        .post_raw(CHAT, super::chat_of(1_000))
        .await;
    assert_eq!(fits.status, StatusCode::OK);
}

#[tokio::test]
async fn a_model_nobody_serves() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, |config| config.providers.clear()).await;
    for path in [CHAT, "/v1/embeddings", "/v1/completions"] {
        let answer = app.client().post(path, &chat()).await;
        assert_refused(path, &answer, 501, "PROVIDER_NOT_CONFIGURED");
    }
    let answer = app.client().get("/v1/models").await;
    assert_refused("models", &answer, 501, "PROVIDER_NOT_CONFIGURED");
    assert_untouched("a 501", &upstream);
}

#[tokio::test]
async fn a_store_that_cannot_say_who_is_asking() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    app.store.close().await.expect("closed once");
    for path in [CHAT, "/v1/embeddings", "/v1/completions"] {
        let answer = app.client().post(path, &chat()).await;
        assert_refused(path, &answer, 503, "AUTH_UNAVAILABLE");
        assert!(
            answer
                .header("retry-after")
                .parse::<u64>()
                .is_ok_and(|s| s >= 1)
        );
    }
    let answer = app.client().get("/v1/models").await;
    assert_refused("models", &answer, 503, "AUTH_UNAVAILABLE");
    assert_untouched("a closed store", &upstream);
}

#[tokio::test]
async fn routes_and_methods_that_do_not_exist() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = app.client().get("/v1/nothing").await;
    assert_refused("a route", &answer, 404, "NOT_FOUND");
    let answer = app.client().get(CHAT).await;
    assert_refused("a method", &answer, 405, "METHOD_NOT_ALLOWED");
    for path in ["/v1/models/../embeddings", "/v1/models/%2e%2e/files"] {
        let answer = app.client().get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    let answer = app
        .client()
        .send(Method::PUT, "/v1/models", Bytes::new())
        .await;
    assert_refused("a method", &answer, 405, "METHOD_NOT_ALLOWED");
    assert_untouched("an unknown route", &upstream);
}
