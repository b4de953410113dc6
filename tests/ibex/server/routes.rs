//! The route table, the router and the OpenAPI document say the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, StatusCode};
use ibex::server::{Access, ROUTES};
use serde_json::Value;

use super::service;
use crate::support::Client;

/// A path with something in place of its parameters.
fn filled(path: &str) -> String {
    path.replace("{model}", "vendor/gpt-4o")
        .replace("{version}", "1")
        .replace("{file}", "console.css")
        .replace("{id}", "018f3f3e-0000-7000-8000-000000000000")
}

fn method(name: &str) -> Method {
    name.to_uppercase().parse().unwrap()
}

#[tokio::test]
async fn the_document_lists_the_table() {
    let app = service().await;
    let answer = Client::new(app.address).get("/openapi.json").await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (StatusCode::OK, "application/json")
    );
    let document = answer.json();
    let shape = |path: &str| {
        path.split('/')
            .map(|s| if s.starts_with('{') { "{}" } else { s })
            .collect::<Vec<_>>()
            .join("/")
    };
    let methods = |item: &Value| {
        let mut names: Vec<String> = item
            .as_object()
            .unwrap()
            .keys()
            .filter(|k| *k != "parameters")
            .cloned()
            .collect();
        names.sort();
        names
    };
    let documented: BTreeMap<String, Vec<String>> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, item)| (shape(path), methods(item)))
        .collect();
    let table: BTreeMap<String, Vec<String>> = ROUTES
        .iter()
        .map(|r| {
            (
                shape(r.path),
                r.methods.iter().map(|m| (*m).to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(documented, table);
    for route in ROUTES {
        let item = &document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .find(|(path, _)| shape(path) == shape(route.path))
            .unwrap()
            .1;
        for name in route.methods {
            let security = item[name].get("security").or(document.get("security"));
            let open = security.and_then(Value::as_array).is_none_or(Vec::is_empty);
            assert_eq!(
                open,
                matches!(route.access, Access::Open(_)),
                "{name} {}",
                route.path
            );
        }
    }
}

#[tokio::test]
async fn protected_routes_ask_for_a_credential_and_open_ones_do_not() {
    let app = service().await;
    let nobody = Client::new(app.address).header("content-type", "application/json");
    let stranger = nobody
        .clone()
        .header("authorization", "Bearer ibex_pat_invented");
    for route in ROUTES {
        for name in route.methods {
            let (method, path) = (method(name), filled(route.path));
            let without = nobody
                .send(method.clone(), &path, Bytes::from_static(b"{}"))
                .await;
            let with = stranger
                .send(method, &path, Bytes::from_static(b"{}"))
                .await;
            match route.access {
                Access::Protected => {
                    assert_eq!(
                        (without.status, without.code().as_str()),
                        (StatusCode::UNAUTHORIZED, "MISSING_TOKEN"),
                        "{path}"
                    );
                    assert_eq!(
                        (with.status, with.code().as_str()),
                        (StatusCode::UNAUTHORIZED, "INVALID_TOKEN"),
                        "{path}"
                    );
                    assert_eq!(without.header("www-authenticate"), "Bearer");
                }
                Access::Open(_) => assert_eq!(
                    (without.status, with.status),
                    (StatusCode::OK, StatusCode::OK),
                    "{path}"
                ),
            }
            for answer in [without, with] {
                assert!(
                    !answer.header("x-request-id").is_empty()
                        && !answer.header("x-trace-id").is_empty(),
                    "{path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_providers_surface_also_answers_without_its_version() {
    let app = service().await;
    let nobody = Client::new(app.address).header("content-type", "application/json");
    for route in ROUTES
        .iter()
        .filter(|r| matches!(r.access, Access::Protected))
    {
        let Some(bare) = route.path.strip_prefix("/v1") else {
            continue;
        };
        let provider = [
            "/chat",
            "/responses",
            "/completions",
            "/embeddings",
            "/models",
        ]
        .iter()
        .any(|p| bare.starts_with(p));
        let answer = nobody
            .send(
                method(route.methods[0]),
                &filled(bare),
                Bytes::from_static(b"{}"),
            )
            .await;
        let expected = if provider {
            StatusCode::UNAUTHORIZED
        } else {
            StatusCode::NOT_FOUND
        };
        assert_eq!(answer.status, expected, "{bare}");
    }
}

#[tokio::test]
async fn other_methods_and_paths_get_the_one_error_shape() {
    let app = service().await;
    let client = app.client();
    for route in ROUTES {
        for name in ["get", "post", "put", "patch", "delete"] {
            // A GET route also answers HEAD; what is not in the table is refused.
            if route.methods.contains(&name) {
                continue;
            }
            let answer = client
                .send(method(name), &filled(route.path), Bytes::new())
                .await;
            let expected = (
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED".to_owned(),
            );
            assert_eq!(
                (answer.status, answer.code()),
                expected,
                "{name} {}",
                route.path
            );
        }
    }
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v1/memories/",
        "/v2/chat/completions",
        "/health/",
        "/admin",
    ] {
        let answer = client.get(path).await;
        let error = answer.json()["error"].take();
        assert_eq!(
            (answer.status, error["code"].as_str()),
            (StatusCode::NOT_FOUND, Some("NOT_FOUND")),
            "{path}"
        );
        assert_eq!(error["request_id"], answer.header("x-request-id"));
        assert_eq!(answer.header("content-type"), "application/json");
    }
}
