//! Environment variables as settings: `IBEX_SECTION__KEY` for every key, and a few short names.

use std::collections::BTreeMap;

use toml::Value;

use super::fault::{Fault, Origin};
use super::schema::{Schema, element, variable};
use super::tree::{self, Kind};

/// The variables of the process.
pub type Variables = BTreeMap<String, String>;

/// Names the configuration file.
pub(super) const CONFIG_FILE: &str = "IBEX_CONFIG";

/// Short names and the settings they stand for. The long name wins where both are set.
const SHORT: &[(&str, &str, Form)] = &[
    ("OPENAI_BASE_URL", "providers.openai.base_url", Form::Plain),
    ("OPENAI_API_KEY", "providers.openai.api_key", Form::Plain),
    ("IBEX_ENV", "env", Form::Plain),
    ("POSTGRES_DSN", "postgres.url", Form::Plain),
    ("REDIS_URL", "redis.urls", Form::Plain),
    ("IBEX_LOG_LEVEL", "log.level", Form::Plain),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "telemetry.endpoint",
        Form::Plain,
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "telemetry.headers",
        Form::Plain,
    ),
    ("OTEL_SERVICE_NAME", "telemetry.service_name", Form::Plain),
    (
        "OTEL_TRACES_SAMPLER_ARG",
        "telemetry.sample_ratio",
        Form::Plain,
    ),
    (
        "IBEX_CONTEXT_DEADLINE_MS",
        "context.deadline_ms",
        Form::Plain,
    ),
    ("IBEX_CONTEXT_TIMEOUT", "context.timeout_ms", Form::Duration),
    (
        "IBEX_CONTEXT_FORMATTER_NONCE_BYTES",
        "context.formatter_nonce_bytes",
        Form::Plain,
    ),
];

/// Variables with our prefix that belong to clients and scripts, not to the server: they pass unread, as does every `IBEX_TEST_…`.
const FOREIGN: &[&str] = &[
    "IBEX_BIN",
    "IBEX_TOKEN",
    "IBEX_AGENT",
    "IBEX_AGENT_ID",
    "IBEX_ORG",
    "IBEX_ORG_ID",
    "IBEX_URL",
    "IBEX_STORE",
    "IBEX_STORE_OFF",
];

/// How a variable's text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As the setting's own type.
    Plain,
    /// Milliseconds, or a number with the unit `ms` or `s`.
    Duration,
}

/// One setting from the environment.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) path: Vec<String>,
    pub(super) origin: Origin,
    pub(super) value: Kind,
}

/// What the environment sets, later settings over earlier ones.
#[derive(Debug, Default)]
pub(super) struct FromEnv {
    pub(super) settings: Vec<Setting>,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<String>,
}

/// The variables of this process that concern the configuration. The only place that reads the process environment.
#[must_use]
pub fn process_env() -> Variables {
    let ours =
        |name: &str| name.starts_with("IBEX_") || SHORT.iter().any(|(short, ..)| *short == name);
    std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((
                name.into_string().ok()?,
                value.to_string_lossy().into_owned(),
            ))
        })
        .filter(|(name, _)| ours(name))
        .collect()
}

/// The variable's value; an empty one counts as unset.
pub(super) fn set<'a>(env: &'a Variables, name: &str) -> Option<&'a str> {
    env.get(name)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

pub(super) fn read(schema: &Schema, env: &Variables) -> FromEnv {
    let mut found = FromEnv::default();
    for (name, path, form) in SHORT {
        let Some(text) = set(env, name) else { continue };
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let long = variable(&path);
        if *name != long && set(env, &long).is_some() {
            found
                .warnings
                .push(format!("{name} is ignored, because {long} is set"));
        } else {
            found.setting(schema, name, path, *form, text);
        }
    }
    for name in env.keys().filter(|name| name.starts_with("IBEX_")) {
        let Some(text) = set(env, name) else { continue };
        if name == CONFIG_FILE || is_foreign(name) || SHORT.iter().any(|(short, ..)| short == name)
        {
            continue;
        }
        let path = name
            .trim_start_matches("IBEX_")
            .to_lowercase()
            .split("__")
            .map(str::to_owned)
            .collect();
        found.setting(schema, name, path, Form::Plain, text);
    }
    found
}

/// Whether a variable is none of the server's: a client's, or one of those that Kubernetes gives every pod for a service named `ibex`.
fn is_foreign(name: &str) -> bool {
    let service_link = name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_");
    FOREIGN.contains(&name)
        || name.starts_with("IBEX_TEST_")
        || (service_link && !name.contains("__"))
}

impl FromEnv {
    fn setting(&mut self, schema: &Schema, name: &str, path: Vec<String>, form: Form, text: &str) {
        let origin = Origin::Variable(name.to_owned());
        let Some(known) = schema.find(&path) else {
            let nearest = match path.as_slice() {
                [flat] => schema
                    .nearest_flat(flat)
                    .or_else(|| schema.nearest_variable(&path)),
                _ => schema.nearest_variable(&path),
            };
            self.faults.push(
                Fault::new(name, "there is no such setting")
                    .at(origin)
                    .nearest(nearest),
            );
            return;
        };
        let key = path.join(".");
        match parse(known, form, text, &origin) {
            Ok(value) => self.settings.push(Setting {
                path,
                origin,
                value,
            }),
            Err(reason) => self.faults.push(Fault::new(key, reason).at(origin)),
        }
    }
}

/// Reads a variable's text as what the setting takes. The text never becomes part of the reason.
fn parse(known: &Value, form: Form, text: &str, origin: &Origin) -> Result<Kind, &'static str> {
    let text = text.trim();
    let value = match known {
        _ if form == Form::Duration => Value::Integer(
            milliseconds(text).ok_or("must be a duration such as 45, 45ms or 0.045s")?,
        ),
        Value::String(_) | Value::Datetime(_) => Value::String(text.to_owned()),
        Value::Integer(_) => Value::Integer(
            text.replace('_', "")
                .parse()
                .map_err(|_| "must be a whole number, without a unit")?,
        ),
        Value::Float(_) => Value::Float(text.parse().map_err(|_| "must be a number")?),
        Value::Boolean(_) => Value::Boolean(text.parse().map_err(|_| "must be true or false")?),
        Value::Array(_) if text.starts_with('[') => {
            return tree::read_value(text, origin).ok_or("is not a TOML list");
        }
        Value::Array(_) if element(known).is_some() => {
            return Err("must be a TOML list of tables: [{ key = value, … }, …]");
        }
        Value::Array(_) => Value::Array(
            text.split(',')
                .map(|item| Value::String(item.trim().to_owned()))
                .collect(),
        ),
        Value::Table(_) => {
            return Err("is a section; set its keys one by one, as IBEX_SECTION__KEY");
        }
    };
    Ok(Kind::Leaf(value))
}

/// `45`, `45ms` and `0.045s` are the same.
fn milliseconds(text: &str) -> Option<i64> {
    let (number, scale) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1.0),
        (None, Some(number)) => (number, 1_000.0),
        (None, None) => (text, 1.0),
    };
    let value = (number.trim().parse::<f64>().ok()? * scale).round();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and within the bounds"
    )]
    (0.0..=1e12).contains(&value).then_some(value as i64)
}
