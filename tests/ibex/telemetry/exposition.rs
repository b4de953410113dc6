//! The two formats of the exposition.

use serde_json::json;

use super::series;
use crate::support::{Overrides, TestApp, Upstream, patient};

/// What a current Prometheus sends.
const CURRENT: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
const OLD: &str = "text/plain; version=0.0.4";

async fn chatted(traces: &str) -> (Upstream, TestApp, String) {
    let upstream = Upstream::echo_ok().await;
    let endpoint = traces.to_owned();
    let traced = move |config: &mut ibex::config::Config| {
        patient(config);
        config.telemetry.endpoint = Some(endpoint);
    };
    let app = TestApp::with(&upstream.url(), traced, Overrides::default()).await;
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]});
    let answer = app.client().post("/v1/chat/completions", &chat).await;
    let trace = answer.header("x-trace-id").to_owned();
    (upstream, app, trace)
}

#[tokio::test]
async fn an_old_scraper_gets_plain_text_and_a_current_one_exemplars() {
    // Nothing listens there; exemplars need nobody to.
    let (_upstream, app, trace) = chatted("http://127.0.0.1:9").await;
    let plain = app.client().header("accept", OLD).get("/metrics").await;
    assert_eq!(
        plain.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let plain = String::from_utf8(plain.body.to_vec()).expect("text");
    assert!(!plain.contains("# EOF") && !plain.contains(" # {") && !plain.contains(&trace));
    assert!(plain.contains("# TYPE ibex_requests_total counter\n"));

    let open = app.client().header("accept", CURRENT).get("/metrics").await;
    assert_eq!(
        open.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let open = String::from_utf8(open.body.to_vec()).expect("text");
    assert!(open.ends_with("# EOF\n"));
    assert!(open.contains("# TYPE ibex_requests counter\n"));
    let exemplar = format!(" # {{trace_id=\"{trace}\"}} ");
    for family in [
        "ibex_request_duration_seconds_bucket{",
        "ibex_request_overhead_seconds_bucket{",
        "ibex_provider_first_byte_seconds_bucket{",
        "ibex_provider_duration_seconds_bucket{",
    ] {
        let with: Vec<&str> = open
            .lines()
            .filter(|line| line.starts_with(family) && line.contains(&exemplar))
            .collect();
        assert_eq!(with.len(), 1, "{family} {open}");
        let (bucket, value) = with[0].split_once(&exemplar).expect("an exemplar");
        let bound = bucket.split('"').nth(1).expect("a bound");
        let (bound, value): (f64, f64) = (bound.parse().unwrap(), value.parse().unwrap());
        assert!(value <= bound, "{value} lies in the bucket up to {bound}");
    }
}

#[tokio::test]
async fn without_a_collector_there_are_no_exemplars() {
    let (_upstream, app, _) = chatted("").await;
    let open = app.client().header("accept", CURRENT).get("/metrics").await;
    let open = String::from_utf8(open.body.to_vec()).expect("text");
    assert!(open.ends_with("# EOF\n") && !open.contains("trace_id"));
    let bare = app.client().get("/metrics").await;
    let bare = String::from_utf8(bare.body.to_vec()).expect("text");
    assert!(series(&bare).len() > 100 && !bare.contains("# EOF"));
}
