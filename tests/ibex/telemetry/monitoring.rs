//! The dashboard and the alerts ask only for what is there: every metric, label and label value is held to the catalogue.

use std::collections::BTreeSet;
use std::convert::Infallible;

use ibex::telemetry::metrics::catalogue::{ALL, Kind, Spec, Values};
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{AggregateExpr, Expr, LabelModifier, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use super::monitoring_file;

/// Labels that Prometheus adds to every series.
const ADDED: [&str; 2] = ["instance", "job"];

fn read(name: &str) -> String {
    std::fs::read_to_string(monitoring_file(name)).expect("a file of config/monitoring")
}

/// The family of a series, by its name in queries.
fn spec(name: &str) -> Option<&'static Spec> {
    ALL.iter().copied().find(|spec| {
        let whole = spec.exposed();
        match spec.kind {
            Kind::Counter | Kind::Gauge => name == whole,
            Kind::Histogram => {
                let parts = ["_bucket", "_sum", "_count"];
                parts.iter().any(|part| name == format!("{whole}{part}"))
            }
        }
    })
}

/// Everything that is wrong with an expression.
#[derive(Default)]
struct Held {
    faults: Vec<String>,
    names: BTreeSet<String>,
    grouped: Vec<String>,
}

impl Held {
    fn selector(&mut self, selector: &VectorSelector) {
        let name = selector.name.clone().unwrap_or_default();
        if name == "up" {
            return;
        }
        let Some(spec) = spec(&name) else {
            self.faults.push(format!("{name} is not in the catalogue"));
            return;
        };
        self.names.insert(name.clone());
        for matcher in &selector.matchers.matchers {
            self.matcher(spec, &name, matcher);
        }
    }

    fn matcher(&mut self, spec: &Spec, name: &str, matcher: &Matcher) {
        if ADDED.contains(&matcher.name.as_str()) {
            return;
        }
        if matcher.name == "le" && spec.kind == Kind::Histogram {
            let bound = matcher.value.parse::<f64>().unwrap_or(f64::NAN);
            if !spec.buckets().contains(&bound) {
                self.faults
                    .push(format!("{name} has no bucket {}", matcher.value));
            }
            return;
        }
        let Some(label) = spec.labels.iter().find(|l| l.name == matcher.name) else {
            self.faults
                .push(format!("{name} has no label {}", matcher.name));
            return;
        };
        let Values::Closed(values) = label.values else {
            return;
        };
        let values = values();
        let wanted: Vec<&str> = match matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => vec![&matcher.value],
            // Patterns are written as alternatives.
            MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').collect(),
        };
        for value in wanted {
            let prefix = value
                .strip_suffix(".*")
                .or_else(|| value.strip_suffix(".."));
            let known = match prefix {
                Some(prefix) => values.iter().any(|v| v.starts_with(prefix)),
                None => values.contains(&value),
            };
            // A dashboard's variable stands for values that were looked up.
            if !known && !value.starts_with('$') {
                self.faults
                    .push(format!("{name}: {} is never {value}", matcher.name));
            }
        }
    }
}

impl ExprVisitor for Held {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        if let Expr::VectorSelector(selector) = expr {
            self.selector(selector);
        }
        if let Expr::MatrixSelector(matrix) = expr {
            self.selector(&matrix.vs);
        }
        if let Expr::Aggregate(AggregateExpr {
            modifier: Some(LabelModifier::Include(labels)),
            ..
        }) = expr
        {
            self.grouped.extend(labels.labels.iter().cloned());
        }
        Ok(true)
    }
}

/// What is wrong with a query, and which series it asks for.
fn held(query: &str) -> Held {
    let mut held = Held::default();
    match parse(query) {
        Ok(expr) => {
            let _whole = walk_expr(&mut held, &expr);
        }
        Err(error) => held.faults.push(error),
    }
    let specs: Vec<_> = held.names.iter().filter_map(|name| spec(name)).collect();
    for label in &held.grouped {
        let known = specs
            .iter()
            .any(|s| s.labels.iter().any(|l| l.name == label));
        if !known && label != "le" && !ADDED.contains(&label.as_str()) {
            held.faults.push(format!("nothing has the label {label}"));
        }
    }
    held
}

/// The queries of a dashboard.
fn dashboard_queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("expr", Value::String(query)) => found.push(query.clone()),
                    _ => dashboard_queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|v| dashboard_queries(v, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The alerts of the rules file with their expressions: `- alert: NAME`, then `expr: |` and indented lines, or the expression behind it.
fn alerts(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some(at) = block {
            if indent > at {
                let (_, expr) = found.last_mut().expect("an alert");
                expr.push_str(line.trim());
                expr.push(' ');
                continue;
            }
            block = None;
        }
        let line = line.trim_start();
        if let Some(name) = line.strip_prefix("- alert: ") {
            found.push((name.to_owned(), String::new()));
        } else if let Some(expr) = line.strip_prefix("expr: ") {
            match expr {
                "|" => block = Some(indent),
                expr => found.last_mut().expect("an alert").1.push_str(expr),
            }
        }
    }
    found
}

#[test]
fn the_dashboard_asks_for_what_is_there() {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let mut queries = Vec::new();
    dashboard_queries(&dashboard, &mut queries);
    assert!(queries.len() >= 20, "{}", queries.len());
    for query in &queries {
        let query = query.replace("$__rate_interval", "5m");
        let faults = held(&query).faults;
        assert!(faults.is_empty(), "{query}: {faults:#?}");
    }
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids: Vec<_> = panels
        .iter()
        .map(|p| p["id"].as_u64().expect("an id"))
        .collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "panels have ids of their own");
}

#[test]
fn the_alerts_ask_for_what_is_there() {
    let alerts = alerts(&read("alerts.yaml"));
    assert!(alerts.len() >= 15, "{}", alerts.len());
    for (name, expr) in &alerts {
        let held = held(expr);
        assert!(held.faults.is_empty(), "{name}: {expr}: {:#?}", held.faults);
        assert!(
            !held.names.is_empty() || expr.contains("up"),
            "{name} asks for nothing"
        );
    }
    let mut names: Vec<_> = alerts.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), alerts.len());
}

#[test]
fn a_wrong_name_or_label_is_found() {
    for (query, fault) in [
        ("rate(ibex_request_total[5m])", "ibex_request_total is not"),
        ("ibex_requests_total{org=\"x\"}", "no label org"),
        ("ibex_requests_total{code=\"teapot\"}", "never teapot"),
        ("ibex_requests_total{code=~\"5..|6..\"}", "never 6.."),
        ("sum by (tenant) (ibex_requests_total)", "the label tenant"),
        ("sum(", ""),
        ("ibex_stage_seconds_bucket{le=\"0.3\"}", "no bucket 0.3"),
    ] {
        let faults = held(query).faults;
        assert!(
            faults.iter().any(|f| f.contains(fault)),
            "{query}: {faults:?}"
        );
    }
}
