//! The catalogue is what is exposed, the page is what the catalogue says, and what tenants and clients do never adds a series.

use http::{Method, StatusCode};
use ibex::auth::Permissions;
use ibex::config::ModelConfig;
use ibex::ids::{AgentId, OrgId};
use ibex::telemetry::FIELDS;
use ibex::telemetry::metrics::catalogue::{ALL, Kind, Spec, Values, page};
use serde_json::json;

use super::{Series, families, monitoring_file, scraped, series};
use crate::cli::Ibex;
use crate::cli::serving::serve_fresh;
use crate::support::{Client, Overrides, Received, Script, TestApp, Upstream, ordinary, patient};

/// Says that the page is to be written anew.
const UPDATE: &str = "IBEX_TEST_UPDATE";

#[test]
fn the_page_is_what_the_code_says() {
    let file = monitoring_file("METRICS.md");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, page()).expect("the page");
    }
    let written = std::fs::read_to_string(&file).expect("the page");
    assert!(
        written == page(),
        "config/monitoring/METRICS.md is stale: {UPDATE}=1 writes it anew"
    );
}

#[test]
fn names_follow_the_conventions() {
    for spec in ALL {
        let (name, unit) = (spec.name, spec.unit.as_str());
        assert!(
            name.starts_with("ibex_") || name.starts_with("process_"),
            "{name}"
        );
        assert!(
            !name.ends_with("_total"),
            "{name}: counters get it where they are exposed"
        );
        let ends = name.ends_with(&format!("_{unit}"));
        assert!(
            ends || !matches!(unit, "seconds" | "ratio") || spec.kind == Kind::Counter,
            "{name} ends with its unit"
        );
        assert_eq!(
            ALL.iter().filter(|other| other.name == name).count(),
            1,
            "{name}"
        );
        for label in spec.labels {
            let values = label.values.closed().unwrap_or_default();
            let open = matches!(label.values, Values::Configured(_));
            assert!(open || !values.is_empty(), "{name}: {}", label.name);
            let mut once = values.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), values.len(), "{name}: {}", label.name);
        }
    }
}

#[test]
fn metrics_that_fields_name_are_there() {
    for field in FIELDS {
        let named = field
            .elsewhere
            .split('`')
            .filter(|t| t.starts_with("ibex_"));
        for name in named {
            assert!(ALL.iter().any(|spec| spec.exposed() == name), "{name}");
        }
    }
}

#[tokio::test]
async fn the_binary_exposes_the_catalogue_and_nothing_else() {
    let ibex = Ibex::new();
    let (_server, address) = serve_fresh(&ibex);
    let client = Client::new(address.parse().expect("an address"));
    let answer = client.get("/metrics").await;
    let text = String::from_utf8(answer.body.to_vec()).expect("text");
    let exposed = families(&text);
    let kind = |spec: &Spec| match spec.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let listed = ALL
        .iter()
        .map(|spec| (spec.exposed(), kind(spec).to_owned()))
        .collect();
    assert_eq!(exposed, listed);
    let figure = |name: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.expect(name).parse::<f64>().expect("a number")
    };
    assert!(figure("process_resident_memory_bytes") > 1e6);
    assert!(figure("process_open_fds") > 3.0);
    assert!(figure("process_start_time_seconds") > 1.7e9);
    assert!(text.contains(&format!(
        "ibex_build_info{{version=\"{}\"",
        env!("CARGO_PKG_VERSION")
    )));
}

/// A label's value that the catalogue does not know.
fn foreign<'s>(found: &'s Series, configured: &[&str]) -> Option<&'s (String, String)> {
    let spec = ALL
        .iter()
        .find(|spec| {
            let ends = ["", "_bucket", "_sum", "_count"];
            ends.iter()
                .any(|end| found.name == format!("{}{end}", spec.exposed()))
        })
        .unwrap_or_else(|| panic!("{} is not in the catalogue", found.name));
    found.labels.iter().find(|(name, value)| {
        if name == "le" && spec.kind == Kind::Histogram {
            return value.parse::<f64>().is_err();
        }
        let label = spec.labels.iter().find(|label| label.name == name);
        let label = label.unwrap_or_else(|| panic!("{} has no label {name}", found.name));
        match label.values {
            Values::Closed(values) | Values::Built(_, values) => {
                !values().contains(&value.as_str())
            }
            Values::Configured(_) => !configured.contains(&value.as_str()),
        }
    })
}

/// Answers with the status that the model names, in the ordinary way otherwise.
fn answer_of(request: &Received) -> Script {
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let model = body["model"].as_str().unwrap_or_default();
    match model.rsplit_once("status-").map(|(_, code)| code) {
        Some(code) => {
            Script::new().json(&format!("{code} Odd"), &json!({"error": {"message": "x"}}))
        }
        None => ordinary(request),
    }
}

/// Everything that a round of clients does, under names that only this round has.
async fn round(app: &TestApp, name: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..6 {
        let (org, agent) = (OrgId::new(), AgentId::new());
        app.create_org(org).await;
        app.create_agent(org, agent).await;
        let token = app.mint(org, None, None, Permissions::all()).await;
        let client = app
            .client_with(&token, Some(agent))
            .header("x-ibex-user-id", &format!("user-{name}-{n}"))
            .header("x-ibex-session-id", &format!("session-{name}-{n}"))
            .header("user-agent", &format!("agent-{name}-{n}"));
        ids.extend([org.to_string(), agent.to_string(), token]);
        let content = format!("The {name} of number {n} grows by the weir.");
        client
            .post("/v1/memories", &json!({"content": content}))
            .await;
        for model in [
            "gpt-4o".to_owned(),
            format!("model-{name}-{n}"),
            format!("vendor-{name}/model-{n}"),
            format!("{name}-status-{}", [400, 404, 418, 429, 500, 529][n]),
        ] {
            for stream in [false, true] {
                let question = format!("Where does the {name} of number {n} grow?");
                let chat = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": question}]});
                client.post("/v1/chat/completions", &chat).await;
            }
        }
        client.get(&format!("/v1/models/{name}-{n}")).await;
        client.get(&format!("/{name}/{n}")).await;
        client.get(&format!("/v1/memories/{name}")).await;
        let odd = Method::from_bytes(format!("ODD{}", name.to_uppercase()).as_bytes());
        client
            .send(odd.expect("a method"), &format!("/v1/{name}"), "".into())
            .await;
        client
            .post_raw("/v1/chat/completions", format!("{{{name}"))
            .await;
        let forged = client
            .clone()
            .header("authorization", &format!("Bearer {name}"));
        assert_eq!(
            forged.get("/v1/memories").await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    ids
}

#[tokio::test]
async fn tenants_and_clients_add_no_series() {
    let upstream = Upstream::start(answer_of).await;
    let named = |config: &mut ibex::config::Config| {
        patient(config);
        config.models = vec![ModelConfig {
            pattern: "gpt-4o*".to_owned(),
            provider: None,
            upstream_model: None,
            context_window: None,
            max_output_tokens: None,
            tokenizer: None,
            system_role: None,
            recall: None,
        }];
    };
    let app = TestApp::with(&upstream.url(), named, Overrides::default()).await;
    let mut ids = round(&app, "quillwort").await;
    // A scrape is a request as well, which the next one shows.
    scraped(&app).await;
    let first = scraped(&app).await;
    ids.extend(round(&app, "spikerush").await);
    let second = scraped(&app).await;
    let (before, after) = (series(&first), series(&second));
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "other names, other series: {new:#?}");
    for found in &after {
        let foreign = foreign(found, &["openai", "gpt-4o*", "other"]);
        assert_eq!(foreign, None, "{found:?}");
    }
    let canaries = ["quillwort", "spikerush", "vendor-", "model-"];
    for id in ids.iter().map(String::as_str).chain(canaries) {
        assert!(!second.contains(id), "{id}");
    }
    let most: usize = 3_000;
    assert!(after.len() < most, "{}", after.len());
}
