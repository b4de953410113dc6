//! The page of the documents, written from the catalogue.

use super::{ALL, Kind, Label, Spec, Values};
use crate::telemetry::FIELDS;

/// The page as Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(HEAD);
    page.push_str("| Metric | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|\n");
    for spec in ALL {
        page.push_str(&row(spec));
    }
    page.push_str(LABELS);
    let mut labels: Vec<(&Label, Vec<&str>)> = Vec::new();
    for spec in ALL {
        for label in spec.labels {
            let known = labels.iter_mut().find(|(l, _)| same(l, label));
            match known {
                Some((_, metrics)) => metrics.push(spec.name),
                None => labels.push((label, vec![spec.name])),
            }
        }
    }
    for (label, metrics) in labels {
        let values = match label.values {
            Values::Closed(values) => listed(&values()),
            Values::Configured(what) | Values::Built(what, _) => what.to_owned(),
        };
        let name = label.name;
        page.push_str(&format!("| `{name}` | {} | {values} |\n", listed(&metrics)));
    }
    page.push_str(FIELDS_HEAD);
    for field in FIELDS {
        let (name, meaning, elsewhere) = (field.name, field.meaning, field.elsewhere);
        page.push_str(&format!("| `{name}` | {meaning} | {elsewhere} |\n"));
    }
    page.push_str(TRACES);
    page
}

fn row(spec: &Spec) -> String {
    let kind = match spec.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram if spec.exemplars => "histogram, with exemplars",
        Kind::Histogram => "histogram",
    };
    let labels: Vec<&str> = spec.labels.iter().map(|label| label.name).collect();
    format!(
        "| `{}` | {kind} | {} | {} | {} |\n",
        spec.exposed(),
        spec.unit.as_str(),
        listed(&labels),
        spec.help
    )
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Whether two labels of one name say the same, so that one row tells both.
fn same(a: &Label, b: &Label) -> bool {
    let configured = |label: &Label| match label.values {
        Values::Configured(what) | Values::Built(what, _) => Some(what),
        Values::Closed(_) => None,
    };
    a.name == b.name && a.values.closed() == b.values.closed() && configured(a) == configured(b)
}

const HEAD: &str = "# Metrics, log lines and traces

Written by a test from the lists in `src/telemetry`; after a change of them it is written anew with
`IBEX_TEST_UPDATE=1 cargo nextest run --test ibex the_page_is_what_the_code_says`.

## Metrics

`GET /metrics`. A scraper that names `application/openmetrics-text` in `Accept` gets OpenMetrics 1.0.0 with exemplars; every other one gets the
Prometheus text format 0.0.4. A histogram has the series `_bucket`, `_sum` and `_count`. Families of a few series show all of them from the
start; larger ones show a series once it was counted. `process_*` are there on Linux.

";

const LABELS: &str = "
## Labels

No label holds an identifier or a text of a client: every value is one of these.

| Label | In | Values |
|---|---|---|
";

const FIELDS_HEAD: &str = "
## The log line of a request

One line at level `info` with the message `request`, after the answer's last byte, or when it is known that there will be none. A field without a
value is left out.

| Field | Meaning | In spans and metrics |
|---|---|---|
";

const TRACES: &str = "
## Traces

With `telemetry.endpoint`, requests that are sampled leave spans: one for the request (server), one for each stage of `stages_ms` under it, and one for
the provider's call (client) with the `gen_ai.*` attributes of the OpenTelemetry semantic conventions. A caller's `traceparent` decides whether its
request is sampled; of the others `telemetry.sample_ratio` are. The provider gets a `traceparent` whose parent is the span of the call. Spans hold no
text of users, no credentials and no user identifiers.
";
