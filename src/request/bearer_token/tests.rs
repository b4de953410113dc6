use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{BearerTokenError, bearer_token};
use crate::auth::testing::{Bench, new_token};
use crate::error::{ApiError, Code};
use crate::store::{IdentityStore, OrgStatus};

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(
            HeaderName::from_static(name),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

struct Setup {
    bench: Bench,
    key: String,
}

impl Setup {
    fn new() -> Self {
        let bench = Bench::new();
        let key = bench
            .store
            .add_token(new_token(bench.org))
            .secret
            .expose()
            .to_owned();
        Self { bench, key }
    }

    async fn code(&self, lines: &[(&'static str, &str)]) -> Option<Code> {
        bearer_token(&headers(lines), &self.bench.verifier)
            .await
            .err()
            .map(|error| ApiError::from(error).code)
    }
}

#[tokio::test]
async fn the_scheme_is_read_in_any_case_and_spacing() {
    let setup = Setup::new();
    let key = &setup.key;
    for accepted in [
        format!("bearer {key}"),
        format!("BEARER {key}"),
        format!("Bearer  {key}"),
        format!("Bearer {key} "),
    ] {
        assert_eq!(
            setup.code(&[("authorization", &accepted)]).await,
            None,
            "{accepted}"
        );
    }
    let other_case = key.to_uppercase();
    let refused = [
        format!("Basic {key}"),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        String::new(),
        format!("Bearer {other_case}"),
        format!("Token {key}"),
        key.clone(),
        format!("Bearer{key}"),
        format!("Bearer {key} {key}"),
        format!("Bearer {key},"),
        format!("Bearer\u{a0}{key}"),
    ];
    for text in refused {
        let error = bearer_token(&headers(&[("authorization", &text)]), &setup.bench.verifier)
            .await
            .unwrap_err();
        assert_eq!(
            ApiError::from(error).code.status(),
            StatusCode::UNAUTHORIZED,
            "{text}"
        );
    }
}

#[tokio::test]
async fn no_credential_is_told_from_a_bad_one_and_bad_ones_read_alike() {
    let setup = Setup::new();
    for none in [
        &[][..],
        &[("authorization", "Bearer")],
        &[("x-api-key", "")],
        &[("x_api_key", setup.key.as_str())],
    ] {
        assert_eq!(setup.code(none).await, Some(Code::MissingToken), "{none:?}");
    }
    let long = "x".repeat(9_000);
    let mut texts = Vec::new();
    for bad in [
        "Basic x",
        "Bearer sk-123",
        "Bearer a.b.c",
        "Bearer ibex_pat_x",
        &format!("Bearer {long}"),
    ] {
        let error = bearer_token(&headers(&[("authorization", bad)]), &setup.bench.verifier)
            .await
            .unwrap_err();
        texts.push(ApiError::from(error).message.to_string());
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
}

#[tokio::test]
async fn key_headers_serve_and_must_agree() {
    let setup = Setup::new();
    let key = setup.key.as_str();
    let bearer = format!("Bearer {key}");
    assert_eq!(setup.code(&[("x-api-key", key)]).await, None);
    assert_eq!(setup.code(&[("api-key", key)]).await, None);
    assert_eq!(
        setup
            .code(&[
                ("authorization", &bearer),
                ("x-api-key", key),
                ("api-key", key)
            ])
            .await,
        None
    );
    assert_eq!(
        setup
            .code(&[("authorization", &bearer), ("x-api-key", "other")])
            .await,
        Some(Code::InvalidRequest)
    );
    assert_eq!(
        setup
            .code(&[("api-key", "other"), ("x-api-key", key)])
            .await,
        Some(Code::InvalidRequest)
    );
    assert_eq!(
        setup
            .code(&[("authorization", "Basic eDp5"), ("x-api-key", key)])
            .await,
        Some(Code::InvalidToken)
    );
    assert_eq!(
        setup
            .code(&[("authorization", &bearer), ("x-api-key", "")])
            .await,
        Some(Code::MissingToken)
    );
}

#[tokio::test]
async fn a_header_sent_twice_is_refused_even_with_one_value() {
    let setup = Setup::new();
    let bearer = format!("Bearer {}", setup.key);
    let twice = bearer_token(
        &headers(&[("authorization", &bearer), ("authorization", &bearer)]),
        &setup.bench.verifier,
    )
    .await;
    assert!(matches!(twice, Err(BearerTokenError::Malformed)));
    assert_eq!(
        setup
            .code(&[("x-api-key", &setup.key), ("x-api-key", &setup.key)])
            .await,
        Some(Code::InvalidToken)
    );
}

#[tokio::test]
async fn outage_and_suspension_have_their_own_codes() {
    let setup = Setup::new();
    let lines = [("x-api-key", setup.key.as_str())];
    setup
        .bench
        .store
        .down
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let error = ApiError::from(
        bearer_token(&headers(&lines), &setup.bench.verifier)
            .await
            .unwrap_err(),
    );
    assert_eq!(
        (error.code, error.retry_after),
        (Code::AuthUnavailable, Some(1))
    );
    setup
        .bench
        .store
        .down
        .store(false, std::sync::atomic::Ordering::Relaxed);
    setup
        .bench
        .store
        .set_org_status(setup.bench.org, OrgStatus::Suspended)
        .await
        .unwrap();
    assert_eq!(setup.code(&lines).await, Some(Code::OrgSuspended));
}
