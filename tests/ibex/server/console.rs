//! The console: who may look, what is kept of a request, and that none of it is anybody else's.

use bytes::Bytes;
use http::{Method, StatusCode};
use ibex::auth::Permissions;
use ibex::config::{Config, Environment};
use ibex::ids::{AgentId, OrgId};
use serde_json::{Value, json};

use super::service;
use crate::support::{Client, Overrides, TestApp, Upstream, assembled, patient};

const CANARY: &str = "heronfeather";
const FILES: [&str; 13] = [
    "index.html",
    "console.css",
    "icon.svg",
    "app.js",
    "api.js",
    "chart.js",
    "dom.js",
    "live.js",
    "memories.js",
    "plan.js",
    "preview.js",
    "requests.js",
    "sessions.js",
];

async fn answering(edit: impl FnOnce(&mut Config)) -> (TestApp, Upstream) {
    let upstream = Upstream::echo_ok().await;
    let edit = |config: &mut Config| {
        patient(config);
        edit(config);
    };
    let app = TestApp::with(&upstream.url(), edit, Overrides::default()).await;
    (app, upstream)
}

async fn chat(client: &Client, text: &str) {
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]});
    let answer = client.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
}

async fn requests(client: &Client) -> Vec<Value> {
    let answer = client.get("/console/api/requests").await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    answer.json()["requests"].as_array().unwrap().clone()
}

async fn names(client: &Client) -> Vec<String> {
    let all = requests(client).await;
    let name = |r: &Value| r["request_id"].as_str().unwrap().to_owned();
    all.iter().map(name).collect()
}

fn path(request: &Value) -> String {
    format!("/console/api/requests/{}", request["id"].as_str().unwrap())
}

#[tokio::test]
async fn every_file_forbids_what_is_not_its_own() {
    let app = service().await;
    let nobody = Client::new(app.address);
    let page = nobody.get("/console").await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let by_name = nobody.get("/console/index.html").await;
    assert_eq!(by_name.status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(by_name.header("location"), "../console");
    for name in FILES {
        let path = match name {
            "index.html" => "/console".to_owned(),
            part => format!("/console/{part}"),
        };
        let answer = nobody.get(&path).await;
        assert_eq!(answer.status, StatusCode::OK, "{name}");
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.split("; ").any(|p| p == part), "{part}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'));
        for (header, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(answer.header(header), value, "{name}");
        }
        let tag = answer.header("etag").to_owned();
        let again = nobody.clone().header("if-none-match", &format!("W/{tag}"));
        let again = again.get(&path).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{name}");
        assert!(again.body.is_empty() && again.header("etag") == tag);
    }
    let other = nobody.get("/console/server.rs").await;
    assert_eq!(
        (other.status, other.code().as_str()),
        (StatusCode::NOT_FOUND, "NOT_FOUND")
    );
}

#[tokio::test]
async fn nothing_in_the_page_is_inline_or_foreign() {
    let app = service().await;
    let nobody = Client::new(app.address);
    for name in FILES {
        let answer = nobody.get(&format!("/console/{name}")).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        for foul in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "https://",
            "localStorage",
            "style=\"",
            "onclick=\"",
        ] {
            assert!(!text.contains(foul), "{name}: {foul}");
        }
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("http://"), "{name}");
    }
}

#[tokio::test]
async fn where_it_is_off_it_is_not_there() {
    let production = |config: &mut Config| config.env = Environment::Production;
    let off = |config: &mut Config| config.console.enabled = Some(false);
    let edits: [&dyn Fn(&mut Config); 2] = [&production, &off];
    for edit in edits {
        let (app, _upstream) = answering(edit).await;
        chat(&app.client(), "Good morning.").await;
        for path in [
            "/console",
            "/console/console.css",
            "/console/api/viewer",
            "/console/api/live",
            "/console/api/requests",
            "/console/api/requests/018f3f3e-0000-7000-8000-000000000000",
        ] {
            for client in [Client::new(app.address), app.client()] {
                let answer = client.get(path).await;
                assert_eq!(
                    (answer.status, answer.code().as_str()),
                    (StatusCode::NOT_FOUND, "NOT_FOUND"),
                    "{path}"
                );
            }
        }
        assert!(app.app.console.recent(|_| true).is_empty());
    }
    let on = |config: &mut Config| {
        config.env = Environment::Production;
        config.console.enabled = Some(true);
    };
    let (app, _upstream) = answering(on).await;
    let viewer = app.client().get("/console/api/viewer").await;
    assert_eq!(viewer.json()["environment"], "production");
}

#[tokio::test]
async fn it_has_a_permission_of_its_own() {
    let app = service().await;
    let without =
        Permissions::from_bits(Permissions::all().bits() & !Permissions::CONSOLE_READ.bits());
    let token = app.mint(app.org, None, None, without).await;
    let client = app.client_with(&token, Some(app.agent));
    for path in [
        "/console/api/viewer",
        "/console/api/live",
        "/console/api/requests",
        "/console/api/requests/018f3f3e-0000-7000-8000-000000000000",
    ] {
        let answer = client.get(path).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSIONS"),
            "{path}"
        );
        let error = answer.json()["error"].take();
        assert_eq!(error["type"], "permission_error");
        assert!(error["message"].as_str().unwrap().contains("ConsoleRead"));
    }
    // The figures of the process are of every tenant.
    let token = app
        .mint(app.org, Some(app.agent), None, Permissions::CONSOLE_READ)
        .await;
    let client = app.client_with(&token, None);
    let viewer = client.get("/console/api/viewer").await;
    assert_eq!(viewer.status, StatusCode::OK);
    assert_eq!(viewer.header("cache-control"), "no-store");
    assert_eq!(viewer.json()["permissions"], json!(["ConsoleRead"]));
    assert_eq!(requests(&client).await, Vec::<Value>::new());
    let live = client.get("/console/api/live").await;
    assert_eq!(live.status, StatusCode::FORBIDDEN);
    let text = live.json()["error"]["message"].take();
    assert!(text.as_str().unwrap().contains("OperatorMetadataRead"));
}

#[tokio::test]
async fn a_request_leaves_its_plan_and_no_text() {
    for edit in [patient as fn(&mut Config), assembled] {
        let (app, _upstream) = answering(edit).await;
        let client = app.client();
        let content = format!("Mara keeps the {CANARY} under the third stone.");
        let memory = client
            .post("/v1/memories", &json!({"content": content}))
            .await;
        let memory = memory.json()["id"].as_str().unwrap().to_owned();
        let directive = json!({"content": format!("Mention the {CANARY}."), "promote": true});
        client.post("/v1/directives", &directive).await;
        let asking = client.clone().header("x-request-id", "stone-1");
        chat(&asking, &format!("Where does Mara keep the {CANARY}?")).await;

        let kept = app.app.console.recent(|_| true);
        let inside = format!("{kept:?}");
        assert!(
            !inside.contains(CANARY) && inside.contains("stone-1"),
            "{inside}"
        );

        let found = requests(&client).await;
        let [request] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(request["request_id"], "stone-1");
        assert_eq!(
            (&request["status"], &request["outcome"], &request["level"]),
            (&json!(200), &json!("complete"), &json!("L0"))
        );
        assert_eq!(request["packed"], 1);
        assert!(request["tokens"]["injected"].as_u64().unwrap() > 0);
        assert!(request["whole_ms"].as_f64() >= request["first_byte_ms"].as_f64());

        let whole = client.get(&path(request)).await.json();
        let planned = |whole: &Value| {
            let all = whole["plan"]["memories"].as_array().unwrap().clone();
            let mine = |m: &&Value| m["id"] == memory && m["decision"] == "packed";
            all.iter().filter(mine).count()
        };
        assert_eq!(planned(&whole), 1);
        assert_eq!(whole["memories"][0]["content"], json!(content));

        // Whoever may not read memories sees that there was one.
        let token = app
            .mint(app.org, Some(app.agent), None, Permissions::CONSOLE_READ)
            .await;
        let blind = app.client_with(&token, None).get(&path(request)).await;
        assert_eq!(blind.status, StatusCode::OK);
        assert!(!String::from_utf8_lossy(&blind.body).contains(CANARY));
        assert_eq!(planned(&blind.json()), 1);

        // What was forgotten does not come back from here.
        client.delete(&format!("/v1/memories/{memory}")).await;
        let after = client.get(&path(request)).await;
        assert!(!String::from_utf8_lossy(&after.body).contains(CANARY));
    }
}

#[tokio::test]
async fn everybody_sees_their_own_requests_alone() {
    let (app, _upstream) = answering(|_| {}).await;
    let (org, agent, foreign) = (OrgId::new(), AgentId::new(), AgentId::new());
    app.create_org(org).await;
    app.create_agent(org, foreign).await;
    app.create_agent(app.org, agent).await;
    let other_org = app.mint(org, None, None, Permissions::all()).await;
    let ours = app.client();
    let sibling = app.client_with(&app.token, Some(agent));
    let stranger = app.client_with(&other_org, Some(foreign));
    let named = |client: &Client, name: &str| client.clone().header("x-request-id", name);
    let user = |client: &Client, name: &str| client.clone().header("x-ibex-user-id", name);

    chat(&named(&ours, "ours"), "Hello.").await;
    chat(&named(&sibling, "sibling"), "Hello.").await;
    chat(&named(&stranger, "stranger"), "Hello.").await;
    chat(&named(&user(&ours, "ann"), "ann"), "Hello.").await;
    chat(&named(&user(&ours, "ben"), "ben"), "Hello.").await;

    assert_eq!(names(&stranger).await, ["stranger"]);
    assert_eq!(names(&sibling).await, ["sibling"]);
    assert_eq!(names(&user(&ours, "ann")).await, ["ann"]);
    // Whoever may name any user sees the requests of all of them.
    assert_eq!(names(&ours).await, ["ben", "ann", "ours"]);
    let plain = Permissions::CONSOLE_READ.with(Permissions::MEMORY_READ);
    let token = app.mint(app.org, None, None, plain).await;
    assert_eq!(
        names(&app.client_with(&token, Some(app.agent))).await,
        ["ours"]
    );
    let token = app
        .mint(app.org, None, Some("ben".parse().unwrap()), plain)
        .await;
    assert_eq!(
        names(&app.client_with(&token, Some(app.agent))).await,
        ["ben"]
    );

    let absent = stranger
        .get("/console/api/requests/018f3f3e-0000-7000-8000-000000000000")
        .await;
    for (request, others) in [
        (requests(&ours).await.remove(0), [&stranger, &sibling]),
        (requests(&stranger).await.remove(0), [&ours, &sibling]),
    ] {
        for other in others {
            let answer = other.get(&path(&request)).await;
            assert_eq!(
                (answer.status, answer.code()),
                (absent.status, absent.code()),
                "a foreign request reads like one that never was"
            );
        }
    }
}

#[tokio::test]
async fn as_many_are_kept_as_configured() {
    for (room, expected) in [(2, vec!["r4", "r3"]), (0, vec![])] {
        let (app, _upstream) = answering(|config| config.console.recent_requests = room).await;
        for name in ["r1", "r2", "r3", "r4"] {
            chat(&app.client().header("x-request-id", name), "Hello.").await;
        }
        assert_eq!(names(&app.client()).await, expected);
        let answer = app.client().get("/console/api/requests").await;
        assert_eq!(answer.json()["room"], room);
    }
}

#[tokio::test]
async fn a_request_without_an_answer_and_one_without_memory_are_kept_too() {
    let app = service().await;
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]});
    let refused = app.client().post("/v1/chat/completions", &body).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let skipping = app.client().header("x-ibex-skip-memory", "1");
    skipping.post("/v1/chat/completions", &body).await;
    let found = requests(&app.client()).await;
    assert_eq!(found[0]["context"], "skipped");
    assert_eq!(
        app.client().get(&path(&found[0])).await.json()["plan"],
        Value::Null
    );
    assert_eq!(
        (&found[1]["code"], &found[1]["status"], &found[1]["outcome"]),
        (&json!("PROVIDER_UNAVAILABLE"), &json!(503), &Value::Null)
    );
}

#[tokio::test]
async fn the_figures_count_what_happened() {
    let (app, _upstream) = answering(|_| {}).await;
    let client = app.client();
    chat(&client, "Hello.").await;
    chat(&client, "Hello again.").await;
    client.post_raw("/v1/chat/completions", "{").await;
    client.get("/health").await;
    client.get("/console/api/viewer").await;
    let live = client.get("/console/api/live").await;
    assert_eq!(live.status, StatusCode::OK);
    let live = live.json();
    let counted = &live["counted"];
    assert_eq!(
        (
            &counted["requests"],
            &counted["refused"],
            &counted["provider_calls"]
        ),
        (&json!(3), &json!(1), &json!(2)),
        "neither probes nor the console itself count"
    );
    assert_eq!(live["errors"], json!({"INVALID_JSON": 1}));
    assert_eq!(live["levels"]["L0"], 2);
    assert_eq!(live["ends"]["complete"], 2);
    assert!(live["whole_ms"]["p99"].as_f64() >= live["whole_ms"]["p50"].as_f64());
    assert_eq!(live["ready"]["checks"]["store"]["status"], "ok");
    // This very request.
    assert_eq!(live["open_waiting"], 1);
    let text = live.to_string();
    for identifier in [app.org.to_string(), app.agent.to_string()] {
        assert!(!text.contains(&identifier));
    }
}

#[tokio::test]
async fn it_only_reads() {
    let app = service().await;
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in ["/console", "/console/api/requests", "/console/api/live"] {
            let answer = app.client().send(method.clone(), path, Bytes::new()).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
    }
}
