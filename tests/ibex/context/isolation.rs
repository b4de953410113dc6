//! Who sees what: two organisations, agents and users with memories that differ by one word, through every route that reads or removes.

use std::collections::BTreeSet;

use http::StatusCode;
use ibex::auth::Permissions;
use ibex::config::{Config, Switch};
use ibex::ids::{AgentId, MemoryId, OrgId};
use serde_json::{Value, json};

use crate::support::{Client, Overrides, TestApp, Upstream, assembled};

const QUESTION: &str = "Where does the spare key hang?";

/// Everything that is found goes out.
fn open_gate(config: &mut Config) {
    assembled(config);
    config.context.recall_gate = Switch::Off;
    config.context.relevance_floor = 0.0;
}

struct Tenant {
    name: &'static str,
    client: Client,
    id: String,
}

impl Tenant {
    fn content(&self) -> String {
        format!("The spare key hangs in the {} shed.", self.name)
    }
}

/// One memory each for: two agents of one organisation, another organisation, and two users of the first agent.
struct Town {
    app: TestApp,
    upstream: Upstream,
    tenants: Vec<Tenant>,
}

impl Town {
    async fn new() -> Self {
        let upstream = Upstream::echo_ok().await;
        let app = TestApp::with(&upstream.url(), open_gate, Overrides::default()).await;
        let (other_agent, other_org, foreign_agent) =
            (AgentId::new(), OrgId::new(), AgentId::new());
        app.create_agent(app.org, other_agent).await;
        app.create_org(other_org).await;
        app.create_agent(other_org, foreign_agent).await;
        let foreign = app.mint(other_org, None, None, Permissions::all()).await;
        let bound = app
            .mint(
                app.org,
                Some(app.agent),
                Some("bob".parse().unwrap()),
                Permissions::all(),
            )
            .await;
        let clients = [
            ("red", app.client()),
            ("green", app.client_with(&app.token, Some(other_agent))),
            ("blue", app.client_with(&foreign, Some(foreign_agent))),
            ("ann", app.client().header("x-ibex-user-id", "ann")),
            ("bob", app.client_with(&bound, None)),
        ];
        let mut tenants = Vec::new();
        for (name, client) in clients {
            let mut tenant = Tenant {
                name,
                client,
                id: String::new(),
            };
            let body = json!({"content": tenant.content(), "pinned": true});
            let created = tenant.client.post("/v1/memories", &body).await;
            assert_eq!(created.status, StatusCode::CREATED);
            created.json()["id"]
                .as_str()
                .unwrap()
                .clone_into(&mut tenant.id);
            tenants.push(tenant);
        }
        Self {
            app,
            upstream,
            tenants,
        }
    }

    /// The names that a text speaks of.
    fn named(&self, text: &str) -> BTreeSet<&'static str> {
        let names = self
            .tenants
            .iter()
            .filter(|t| text.contains(&t.content()) || text.contains(&t.id));
        names.map(|t| t.name).collect()
    }

    /// What every reading route shows to a client.
    async fn seen(&self, client: &Client) -> Vec<BTreeSet<&'static str>> {
        let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": QUESTION}]});
        let mut answers = Vec::new();
        answers.push(
            client
                .post(
                    "/v1/memories/search",
                    &json!({"query": QUESTION, "limit": 100}),
                )
                .await,
        );
        answers.push(client.get("/v1/memories?limit=100").await);
        answers.push(client.get("/v1/memories/hot?limit=50").await);
        answers.push(client.post("/v1/context/preview", &chat).await);
        answers.push(client.post("/v1/context/assemble", &chat).await);
        let mut seen: Vec<_> = answers
            .iter()
            .map(|answer| {
                assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
                self.named(&String::from_utf8_lossy(&answer.body))
            })
            .collect();
        let sent = client.post("/v1/chat/completions", &chat).await;
        assert_eq!(sent.status, StatusCode::OK);
        seen.push(self.named(&String::from_utf8_lossy(&self.upstream.last().request.body)));
        let mut read = BTreeSet::new();
        for tenant in &self.tenants {
            let answer = client.get(&format!("/v1/memories/{}", tenant.id)).await;
            if answer.status == StatusCode::OK {
                read.insert(tenant.name);
            }
        }
        seen.push(read);
        seen
    }
}

#[tokio::test]
async fn every_route_shows_what_the_scope_may_see_and_nothing_else() {
    let town = Town::new().await;
    let visible: [(&str, &[&str]); 5] = [
        ("red", &["red"]),
        ("green", &["green"]),
        ("blue", &["blue"]),
        ("ann", &["ann", "red"]),
        ("bob", &["bob", "red"]),
    ];
    for (name, expected) in visible {
        let tenant = town.tenants.iter().find(|t| t.name == name).unwrap();
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        for (route, seen) in town.seen(&tenant.client).await.into_iter().enumerate() {
            assert_eq!(seen, expected, "{name}, route {route}");
        }
    }
    let stranger = town.app.client().header("x-ibex-user-id", "cy");
    for seen in town.seen(&stranger).await {
        assert_eq!(seen, BTreeSet::from(["red"]));
    }
}

#[tokio::test]
async fn absent_and_foreign_ids_read_the_same_and_nothing_is_removed() {
    let town = Town::new().await;
    let absent = MemoryId::new().to_string();
    let error = |answer: &crate::support::Answer| {
        let mut error = answer.json()["error"].take();
        for own in ["request_id", "timestamp"] {
            error.as_object_mut().unwrap().remove(own);
        }
        (answer.status, error)
    };
    for reader in &town.tenants {
        let unknown_get = error(&reader.client.get(&format!("/v1/memories/{absent}")).await);
        let unknown_delete = error(
            &reader
                .client
                .delete(&format!("/v1/memories/{absent}"))
                .await,
        );
        assert_eq!(unknown_get.0, StatusCode::NOT_FOUND);
        assert_eq!(unknown_get, unknown_delete);
        assert_eq!(
            error(&reader.client.get("/v1/memories/not-an-id").await),
            unknown_get
        );
        for other in &town.tenants {
            let shared = other.name == "red" && ["ann", "bob"].contains(&reader.name);
            if other.name == reader.name || shared {
                continue;
            }
            let path = format!("/v1/memories/{}", other.id);
            assert_eq!(
                error(&reader.client.get(&path).await),
                unknown_get,
                "{} reads {}",
                reader.name,
                other.name
            );
            assert_eq!(
                error(&reader.client.delete(&path).await),
                unknown_get,
                "{} removes {}",
                reader.name,
                other.name
            );
        }
    }
    for owner in &town.tenants {
        assert_eq!(
            owner
                .client
                .get(&format!("/v1/memories/{}", owner.id))
                .await
                .status,
            StatusCode::OK
        );
    }
}

#[tokio::test]
async fn the_same_text_in_another_scope_is_another_memory() {
    let town = Town::new().await;
    let text = json!({"content": "Everybody knows this."});
    let mut ids = BTreeSet::new();
    for tenant in &town.tenants {
        let created = tenant.client.post("/v1/memories", &text).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", tenant.name);
        ids.insert(created.json()["id"].as_str().unwrap().to_owned());
        let again = tenant.client.post("/v1/memories", &text).await;
        assert_eq!(
            again.json()["error"]["existing_memory_id"],
            created.json()["id"]
        );
    }
    assert_eq!(ids.len(), town.tenants.len());
}

#[tokio::test]
async fn what_everybody_sees_is_written_and_removed_only_with_its_own_permission() {
    let town = Town::new().await;
    let app = &town.app;
    let without_shared = Permissions::from_bits(
        Permissions::all().bits() & !Permissions::MEMORY_WRITE_SHARED.bits(),
    );
    let token = app.mint(app.org, None, None, without_shared).await;
    let client = app.client_with(&token, Some(app.agent));
    let refused = client
        .post("/v1/memories", &json!({"content": "x y z"}))
        .await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSIONS".to_owned())
    );
    let as_ann = client.header("x-ibex-user-id", "ann");
    assert_eq!(
        as_ann
            .post("/v1/memories", &json!({"content": "x y z"}))
            .await
            .status,
        StatusCode::CREATED
    );
    let (red, ann) = (&town.tenants[0], &town.tenants[3]);
    assert_eq!(
        as_ann
            .delete(&format!("/v1/memories/{}", red.id))
            .await
            .status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        as_ann
            .delete(&format!("/v1/memories/{}", ann.id))
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        red.client
            .get(&format!("/v1/memories/{}", red.id))
            .await
            .status,
        StatusCode::OK
    );
}

fn chat() -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": QUESTION}]})
}

#[tokio::test]
async fn forged_headers_are_refused_before_anything_is_read() {
    let town = Town::new().await;
    let app = &town.app;
    let (own, foreign) = (app.agent.to_string(), AgentId::new().to_string());
    let plain = app.client();
    let nobody = app.client_with(&app.token, None);
    let bad_request = StatusCode::BAD_REQUEST;
    let few = app.mint(app.org, None, None, Permissions::CHAT).await;
    let bound = app
        .mint(
            app.org,
            Some(app.agent),
            Some("bob".parse().unwrap()),
            Permissions::all(),
        )
        .await;
    let bob = app.client_with(&bound, None);
    let rows = [
        (nobody.clone(), bad_request, "MISSING_AGENT_ID"),
        (
            plain.clone().another("x-ibex-agent-id", &own),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().another("x-ibex-agent-id", &foreign),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().header("x_ibex_agent_id", &foreign),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().header("x-ibex_agent-id", &own),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().header("x-ibex-user_id", "ann"),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().header("x-ibex-agent-id", &own.to_uppercase()),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain
                .clone()
                .header("x-ibex-agent-id", &own.replace('-', "")),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain
                .clone()
                .header("x-ibex-agent-id", &format!("{own},{own}")),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().header("x-ibex-agent-id", ""),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            plain.clone().header("x-ibex-agent-id", &foreign),
            StatusCode::FORBIDDEN,
            "AGENT_NOT_AUTHORIZED",
        ),
        (
            plain
                .clone()
                .header("x-ibex-user-id", "ann")
                .another("x-ibex-user-id", "bob"),
            bad_request,
            "VALIDATION_ERROR",
        ),
        (
            app.client_with(&few, Some(app.agent))
                .header("x-ibex-user-id", "ann"),
            StatusCode::FORBIDDEN,
            "INSUFFICIENT_PERMISSIONS",
        ),
        (
            bob.clone().header("x-ibex-user-id", "ann"),
            StatusCode::FORBIDDEN,
            "USER_NOT_AUTHORIZED",
        ),
        (
            bob.clone().header("x-ibex-agent-id", &foreign),
            StatusCode::FORBIDDEN,
            "AGENT_NOT_AUTHORIZED",
        ),
    ];
    let rows_len = rows.len();
    for (i, (client, status, code)) in rows.into_iter().enumerate() {
        for path in [
            "/v1/chat/completions",
            "/v1/context/preview",
            "/v1/memories/search",
        ] {
            let body = if path.ends_with("search") {
                json!({"query": QUESTION})
            } else {
                chat()
            };
            let answer = client.post(path, &body).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (status, code),
                "row {i} of {rows_len}, {path}"
            );
            assert_eq!(
                town.named(&String::from_utf8_lossy(&answer.body)),
                BTreeSet::new()
            );
        }
    }
    assert_eq!(
        town.upstream.hits(),
        0,
        "no provider is called for any of them"
    );
    // The token's own user may be named, and is meant when none is.
    let named = bob
        .clone()
        .header("x-ibex-user-id", "bob")
        .post("/v1/memories/search", &json!({"query": QUESTION}))
        .await;
    assert_eq!(
        town.named(&String::from_utf8_lossy(&named.body)),
        BTreeSet::from(["bob", "red"])
    );
}

#[tokio::test]
async fn a_body_cannot_name_a_scope() {
    let town = Town::new().await;
    let foreign = town.tenants[2].id.clone();
    let client = town.app.client();
    for (name, value) in [
        ("org_id", json!(OrgId::new())),
        ("agent_id", json!(AgentId::new())),
        ("user_id", json!("ann")),
        ("id", json!(foreign)),
    ] {
        let mut body = json!({"content": "A text of nobody."});
        body[name] = value.clone();
        let answer = client.post("/v1/memories", &body).await;
        assert_eq!(
            (
                answer.status,
                answer.json()["error"]["field_errors"][0]["field"].clone()
            ),
            (StatusCode::BAD_REQUEST, json!(name))
        );
        let mut search = json!({"query": QUESTION});
        search[name] = value;
        assert_eq!(
            client.post("/v1/memories/search", &search).await.status,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(
            client.get(&format!("/v1/memories?{name}=x")).await.status,
            StatusCode::BAD_REQUEST
        );
    }
}
