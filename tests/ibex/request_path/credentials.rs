//! How a credential may be spelled, and that nothing of the client's own goes on to the provider.

use http::StatusCode;
use ibex::config::{AuthStyle, Config, ProviderConfig};
use ibex::providers::Registry;

use super::{CHAT, app_with, assert_refused, assert_untouched, chat};
use crate::support::{Client, TestApp, Upstream};

/// The token with the case of its last letter turned.
fn other_case(token: &str) -> String {
    let at = token
        .rfind(|c: char| c.is_ascii_alphabetic())
        .expect("a letter");
    let turned = |c: char| {
        if c.is_ascii_lowercase() {
            c.to_ascii_uppercase()
        } else {
            c.to_ascii_lowercase()
        }
    };
    token
        .char_indices()
        .map(|(i, c)| if i == at { turned(c) } else { c })
        .collect()
}

/// AUTH-01.
#[tokio::test]
async fn the_scheme_is_spelled_in_any_case_and_the_secret_in_one() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let (key, client) = (app.token.clone(), app.client());
    for (value, code) in [
        (format!("Basic {key}"), "INVALID_TOKEN"),
        ("Bearer".to_owned(), "MISSING_TOKEN"),
        (format!("Bearer {}", other_case(&key)), "INVALID_TOKEN"),
        (format!("Token {key}"), "INVALID_TOKEN"),
        (key.clone(), "INVALID_TOKEN"),
        (format!("Bearer {key} {key}"), "INVALID_TOKEN"),
    ] {
        let what = value.replace(&key, "K");
        let answer = client
            .clone()
            .header("authorization", &value)
            .post(CHAT, &chat())
            .await;
        assert_refused(&what, &answer, 401, code);
        assert_eq!(answer.header("www-authenticate"), "Bearer", "{what}");
        assert_eq!(answer.json()["error"]["type"], "authentication_error");
        assert!(!String::from_utf8_lossy(&answer.body).contains(&key));
    }
    let twice = client
        .clone()
        .another("authorization", &format!("Bearer {key}"))
        .post(CHAT, &chat())
        .await;
    assert_refused("two headers", &twice, 401, "INVALID_TOKEN");
    let two = client
        .clone()
        .header("x-api-key", "ibex_pat_another")
        .post(CHAT, &chat())
        .await;
    assert_refused("two credentials", &two, 400, "INVALID_REQUEST");
    let none = client
        .clone()
        .without("authorization")
        .post(CHAT, &chat())
        .await;
    assert_refused("none", &none, 401, "MISSING_TOKEN");
    assert_untouched("a refused credential", &upstream);
}

/// AUTH-01, the spellings that pass.
#[tokio::test]
async fn spaces_around_the_secret_and_bare_key_headers_pass() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let (key, client) = (app.token.clone(), app.client());
    for value in [
        format!("bearer {key}"),
        format!("BEARER {key}"),
        format!("Bearer  {key}"),
        format!("Bearer {key} "),
    ] {
        let answer = client
            .clone()
            .header("authorization", &value)
            .post(CHAT, &chat())
            .await;
        assert_eq!(
            answer.status,
            StatusCode::OK,
            "{}",
            value.replace(&key, "K")
        );
    }
    for name in ["x-api-key", "api-key"] {
        let bare = client.clone().without("authorization").header(name, &key);
        assert_eq!(
            bare.post(CHAT, &chat()).await.status,
            StatusCode::OK,
            "{name}"
        );
    }
}

const CANARIES: [&str; 9] = [
    "x-goog-api-key",
    "cookie",
    "proxy-authorization",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-custom-internal",
    "x-ibex-session-id",
    "forwarded",
    "referer",
];

/// Every operation of the provider's surface with canaries wherever a client may have put a secret.
async fn call_everything(client: &Client) {
    let mut client = client.clone();
    for name in CANARIES {
        client = client.header(name, "CANARY-1");
    }
    for prefix in ["", "/v1"] {
        for operation in ["/chat/completions", "/completions", "/embeddings"] {
            let path = format!("{prefix}{operation}?api_key=CANARY-2");
            let answer = client.post(&path, &chat()).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
        }
        for operation in ["/models", "/models/gpt-4o", "/models/vendor/model"] {
            let path = format!("{prefix}{operation}?api_key=CANARY-2");
            assert_eq!(client.get(&path).await.status, StatusCode::OK, "{path}");
        }
    }
}

fn assert_nothing_leaked(app: &TestApp, upstream: &Upstream) {
    assert_eq!(upstream.hits(), 12);
    for exchange in upstream.exchanges() {
        let (head, body) = (
            exchange.request.head(),
            String::from_utf8_lossy(&exchange.request.body).into_owned(),
        );
        for secret in [
            "CANARY",
            &app.token,
            &app.agent.to_string(),
            &app.org.to_string(),
        ] {
            assert!(!head.contains(secret) && !body.contains(secret), "{head}");
        }
        assert!(!head.to_ascii_lowercase().contains("x-ibex"), "{head}");
    }
}

/// AUTH-05.
#[tokio::test]
async fn no_secret_of_the_client_reaches_the_provider_on_any_route() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    call_everything(&app.client()).await;
    assert_nothing_leaked(&app, &upstream);
    for exchange in upstream.exchanges() {
        let key = exchange.request.values("authorization");
        assert_eq!(key, ["Bearer sk-upstream-invented"]);
    }
}

/// AUTH-05, for a client that uses a bare key and a provider that takes none.
#[tokio::test]
async fn a_provider_without_a_key_gets_no_credential_at_all() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, |config| {
        for provider in config.providers.values_mut() {
            provider.auth = AuthStyle::None;
            provider.api_key = None;
        }
    })
    .await;
    let client = app
        .client()
        .header("x-api-key", &app.token)
        .header("api-key", &app.token);
    call_everything(&client).await;
    assert_nothing_leaked(&app, &upstream);
    for exchange in upstream.exchanges() {
        for name in ["authorization", "x-api-key", "api-key"] {
            assert!(exchange.request.values(name).is_empty(), "{name}");
        }
    }
}

#[test]
fn a_provider_whose_key_is_unset_does_not_start() {
    for api_key in [None, Some(String::new())] {
        let mut config = Config::default();
        let provider = ProviderConfig {
            base_url: "http://up.test/v1".to_owned(),
            api_key,
            auth: AuthStyle::Bearer,
            default: true,
        };
        config.providers.insert("main".to_owned(), provider);
        let error = Registry::new(&config).expect_err("no key").to_string();
        assert!(error.contains("providers.main.api_key"), "{error}");
    }
}
