//! Directives over the API: versions, the active one, promote, rollback, revoke, sizes and permissions.

use http::StatusCode;
use ibex::auth::Permissions;
use ibex::config::Config;
use ibex::ids::AgentId;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::service;
use crate::support::{Client, Overrides, TestApp, patient};

async fn add(client: &Client, body: &Value) -> Value {
    let answer = client.post("/v1/directives", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
    answer.json()
}

/// Version and activity of every version, newest first.
async fn versions(client: &Client) -> Vec<(u64, bool)> {
    let list = client.get("/v1/directives").await.json();
    list["directives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| {
            (
                d["version"].as_u64().unwrap(),
                d["active"].as_bool().unwrap(),
            )
        })
        .collect()
}

/// The directive of a session that would begin now: what stands between the framing and the line with the nonce.
async fn directive(client: &Client) -> String {
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]});
    let shown = client.post("/v1/context/preview", &chat).await.json();
    let text = shown["messages"][0]["content"].as_str().unwrap();
    let (_, behind) = text.split_once("\n\n").unwrap();
    let (directive, _) = behind.rsplit_once("This session's nonce").unwrap();
    directive.trim_end().to_owned()
}

#[tokio::test]
async fn versions_are_appended_promoted_and_rolled_back_and_take_effect_at_once() {
    let app = service().await;
    let client = app.client();
    assert_eq!(
        client.get("/v1/directives/active").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        (versions(&client).await, directive(&client).await),
        (vec![], String::new())
    );
    let first = add(&client, &json!({"content": "One."})).await;
    let hash: String = Sha256::digest("One.")
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(
        (
            &first["version"],
            &first["mode"],
            &first["active"],
            &first["content"],
            &first["content_hash"]
        ),
        (
            &json!(1),
            &json!("system_first"),
            &json!(false),
            &json!("One."),
            &json!(hash)
        )
    );
    assert_eq!(
        directive(&client).await,
        "",
        "a version is not in force before it is promoted"
    );
    let second = add(
        &client,
        &json!({"content": "Two.", "mode": "system_append", "promote": true}),
    )
    .await;
    assert_eq!(
        (&second["version"], &second["active"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(directive(&client).await, "Two.");
    let promoted = client.post("/v1/directives/1/promote", &json!({})).await;
    assert_eq!(
        (promoted.status, promoted.json()["active"].clone()),
        (StatusCode::OK, json!(true))
    );
    assert_eq!(directive(&client).await, "One.");
    assert_eq!(versions(&client).await, [(2, false), (1, true)]);
    let back = client.post("/v1/directives/rollback", &json!({})).await;
    assert_eq!(
        (back.status, back.json()["version"].clone()),
        (StatusCode::OK, json!(2))
    );
    assert_eq!(
        (
            directive(&client).await,
            client.get("/v1/directives/active").await.json()["version"].clone()
        ),
        ("Two.".to_owned(), json!(2))
    );
    for path in [
        "/v1/directives/3/promote",
        "/v1/directives/0/promote",
        "/v1/directives/x/promote",
        "/v1/directives/-1/promote",
    ] {
        assert_eq!(
            client.post(path, &json!({})).await.status,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    assert_eq!(versions(&client).await, [(2, true), (1, false)]);
}

#[tokio::test]
async fn there_is_nothing_to_roll_back_to_without_a_former_version() {
    let app = service().await;
    let client = app.client();
    let refused = client.post("/v1/directives/rollback", &json!({})).await;
    assert!(
        [StatusCode::NOT_FOUND, StatusCode::CONFLICT].contains(&refused.status),
        "{:?}",
        refused.body
    );
    add(&client, &json!({"content": "Only.", "promote": true})).await;
    let refused = client.post("/v1/directives/rollback", &json!({})).await;
    assert!(
        [StatusCode::NOT_FOUND, StatusCode::CONFLICT].contains(&refused.status),
        "{:?}",
        refused.body
    );
    assert_eq!(directive(&client).await, "Only.");
}

#[tokio::test]
async fn a_revoked_version_leaves_use_at_once_and_is_refused_afterwards() {
    let app = service().await;
    let client = app.client();
    for content in ["One.", "Two."] {
        let added = add(&client, &json!({"content": content, "promote": true})).await;
        assert_eq!(added["revoked_at"], Value::Null);
    }
    assert_eq!(directive(&client).await, "Two.");
    let revoked = client.post("/v1/directives/2/revoke", &json!({})).await;
    assert_eq!(revoked.status, StatusCode::OK, "{:?}", revoked.body);
    let revoked = revoked.json();
    assert_eq!(
        (&revoked["version"], &revoked["active"]),
        (&json!(2), &json!(false))
    );
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    assert_eq!(directive(&client).await, "One.");
    assert_eq!(versions(&client).await, [(2, false), (1, true)]);
    let refused = client.post("/v1/directives/2/promote", &json!({})).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::CONFLICT, "CONFLICT")
    );
    assert_eq!(
        refused.json()["error"]["message"],
        "the directive version is revoked"
    );
    let again = client.post("/v1/directives/2/revoke", &json!({})).await;
    assert_eq!((again.status, again.json()), (StatusCode::OK, revoked));
    for path in ["3", "0", "x", "-1"].map(|n| format!("/v1/directives/{n}/revoke")) {
        let refused = client.post(&path, &json!({})).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
    let last = client.post("/v1/directives/1/revoke", &json!({})).await;
    assert_eq!(last.status, StatusCode::OK);
    assert_eq!(directive(&client).await, "", "none is left");
}

#[tokio::test]
async fn sizes_are_checked_before_anything_is_stored() {
    let edit = |config: &mut Config| {
        patient(config);
        config.context.directive_tokens = 50;
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await;
    let client = app.client();
    for text in ["", " \n"] {
        let refused = client
            .post("/v1/directives", &json!({"content": text, "promote": true}))
            .await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "VALIDATION_ERROR")
        );
    }
    for (text, named) in [
        ("a ".repeat(16_385), "32768 bytes"),
        ("word ".repeat(200), "context.directive_tokens"),
    ] {
        let refused = client
            .post("/v1/directives", &json!({"content": text, "promote": true}))
            .await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::UNPROCESSABLE_ENTITY, "PREFIX_TOO_LARGE")
        );
        let message = refused.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            message.contains("directive") && message.contains(named),
            "{message}"
        );
    }
    for body in [
        json!({}),
        json!({"content": 1}),
        json!({"content": "a", "mode": "system_last"}),
        json!({"content": "a", "version": 2}),
    ] {
        let refused = client.post("/v1/directives", &body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "VALIDATION_ERROR"),
            "{body}"
        );
    }
    assert_eq!(versions(&client).await, []);
    add(&client, &json!({"content": "word ".repeat(40)})).await;
}

#[tokio::test]
async fn each_operation_asks_for_its_permission() {
    let app = service().await;
    add(
        &app.client(),
        &json!({"content": "Guarded.", "promote": true}),
    )
    .await;
    let with = async |permissions| {
        app.client_with(
            &app.mint(app.org, None, None, permissions).await,
            Some(app.agent),
        )
    };
    let (read, write, promote, revoke) = (
        with(Permissions::DIRECTIVE_READ).await,
        with(Permissions::DIRECTIVE_WRITE).await,
        with(Permissions::DIRECTIVE_PROMOTE).await,
        with(Permissions::DIRECTIVE_REVOKE).await,
    );
    let (plain, promoted) = (
        json!({"content": "b"}),
        json!({"content": "b", "promote": true}),
    );
    let refused = |status: StatusCode| status == StatusCode::FORBIDDEN;
    for (client, may) in [
        (&read, [true, false, false, false, false]),
        (&write, [false, true, false, false, false]),
        (&promote, [false, false, false, true, false]),
        (&revoke, [false, false, false, false, true]),
    ] {
        let got = [
            client.get("/v1/directives").await.status,
            client.post("/v1/directives", &plain).await.status,
            client.post("/v1/directives", &promoted).await.status,
            client
                .post("/v1/directives/1/promote", &json!({}))
                .await
                .status,
            // A version that is not there, so that the others keep theirs.
            client
                .post("/v1/directives/99/revoke", &json!({}))
                .await
                .status,
        ];
        assert_eq!(got.map(|status| !refused(status)), may);
        assert_eq!(
            refused(client.get("/v1/directives/active").await.status),
            !may[0]
        );
        assert_eq!(
            refused(
                client
                    .post("/v1/directives/rollback", &json!({}))
                    .await
                    .status
            ),
            !may[3]
        );
    }
}

#[tokio::test]
async fn one_agents_directives_are_nobody_elses() {
    let app = service().await;
    let other = AgentId::new();
    app.create_agent(app.org, other).await;
    let stranger = app.client_with(&app.token, Some(other));
    add(&app.client(), &json!({"content": "Ours.", "promote": true})).await;
    assert_eq!(
        (versions(&stranger).await, directive(&stranger).await),
        (vec![], String::new())
    );
    for path in ["/v1/directives/1/promote", "/v1/directives/1/revoke"] {
        let refused = stranger.post(path, &json!({})).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
    let theirs = add(&stranger, &json!({"content": "Theirs.", "promote": true})).await;
    assert_eq!(theirs["version"], 1);
    assert_eq!(
        (directive(&stranger).await, directive(&app.client()).await),
        ("Theirs.".to_owned(), "Ours.".to_owned())
    );
}
