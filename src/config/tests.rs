//! What loading accepts, and the message that everything else gets.

use std::path::Path;

use super::every_key::ANY_NAME;
use super::schema::Schema;
use super::{Config, ConfigFaults, Environment, Loaded, Variables, load};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/ibex.example.toml");

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Loads `text` as a file of its own, under `pairs`.
fn load_text(text: &str, pairs: &[(&str, &str)]) -> Result<Loaded, ConfigFaults> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ibex.toml");
    std::fs::write(&file, text).unwrap();
    load(Some(&file), &variables(pairs))
}

fn load_env(pairs: &[(&str, &str)]) -> Result<Config, ConfigFaults> {
    load(None, &variables(pairs)).map(|loaded| loaded.config)
}

/// The message of a refused file, with the folder taken out of it.
fn refused(text: &str) -> String {
    let message = load_text(text, &[]).unwrap_err().to_string();
    let words = message
        .split('(')
        .map(|part| match part.find("ibex.toml:") {
            Some(at) => part.get(at..).unwrap(),
            None => part,
        });
    words.collect::<Vec<_>>().join("(")
}

#[track_caller]
fn assert_fault(message: &str, parts: &[&str]) {
    let line = message
        .lines()
        .find(|line| line.trim_start().starts_with(parts[0]));
    let line = line.unwrap_or_else(|| panic!("no fault of {}: {message}", parts[0]));
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

fn as_toml(config: &Config) -> toml::Value {
    toml::Value::try_from(config).unwrap()
}

#[test]
fn the_example_is_the_default() {
    let loaded = load(Some(Path::new(EXAMPLE)), &Variables::new()).unwrap();
    assert_eq!(as_toml(&loaded.config), as_toml(&Config::default()));
}

/// The example with every commented-out key set.
fn whole_example() -> String {
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_has_every_key_and_no_other() {
    let example: toml::Table = whole_example().parse().unwrap();
    let schema = Schema::new();
    let mut missing = Vec::new();
    compare(schema.root(), &example, "", &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}

fn compare(known: &toml::Table, example: &toml::Table, path: &str, missing: &mut Vec<String>) {
    for key in example
        .keys()
        .filter(|key| !known.contains_key(*key) && !known.contains_key(ANY_NAME))
    {
        missing.push(format!("{path}{key} is unknown"));
    }
    for (key, value) in known {
        let found = if key == ANY_NAME {
            example.values().find(|v| v.is_table())
        } else {
            example.get(key)
        };
        let path = format!("{path}{key}");
        match (value, found) {
            (_, None) => missing.push(path),
            (toml::Value::Table(value), Some(toml::Value::Table(found))) => {
                compare(value, found, &format!("{path}."), missing)
            }
            (toml::Value::Array(value), Some(toml::Value::Array(found))) => {
                if let (Some(toml::Value::Table(value)), Some(toml::Value::Table(found))) =
                    (value.first(), found.first())
                {
                    compare(value, found, &format!("{path}."), missing);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn every_commented_key_of_the_example_has_a_valid_value() {
    // The example shows both ways of naming keys and URLs; a real file has one of them.
    let message = load_text(&whole_example(), &[]).unwrap_err();
    let keys: Vec<&str> = message
        .faults()
        .iter()
        .map(|fault| fault.key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "telemetry.headers_file",
            "postgres.url_file",
            "redis.urls_file",
            "auth.issuers[0].jwks_url",
            "auth.issuers[0].keys[0]"
        ]
    );
}

#[test]
fn every_key_of_the_schema_has_a_variable() {
    let schema = Schema::new();
    for leaf in schema.leaves() {
        let mut path = leaf.clone();
        path.iter_mut()
            .filter(|key| *key == ANY_NAME)
            .for_each(|key| *key = "local".to_owned());
        assert!(schema.find(&path).is_some(), "{path:?}");
    }
    assert!(schema.leaves().len() > 60);
}

#[test]
fn misspelt_keys_are_refused_with_line_and_near_match() {
    let message = refused(
        "auth_tokenz = 1\n[rate_limit]\nrmp = 5\n\n[rate_limt]\ndefault_rpm = 4\n[providers.local]\nbase_ulr = 'https://x/v1'\nauth = 'none'\n",
    );
    assert_fault(
        &message,
        &[
            "rate_limit.rmp",
            "(ibex.toml:3)",
            "no such key",
            "did you mean rate_limit.default_rpm?",
        ],
    );
    assert_fault(
        &message,
        &["rate_limt", "(ibex.toml:5)", "did you mean rate_limit?"],
    );
    assert_fault(&message, &["auth_tokenz", "(ibex.toml:1)"]);
    assert_fault(
        &message,
        &[
            "providers.local.base_ulr",
            "did you mean providers.local.base_url?",
        ],
    );
    assert!(
        message.starts_with("the configuration has 4 faults:"),
        "{message}"
    );
}

#[test]
fn keys_in_the_wrong_section_are_found_elsewhere() {
    assert_fault(
        &refused("deadline_ms = 40\n"),
        &["deadline_ms", "did you mean context.deadline_ms?"],
    );
    assert_fault(
        &refused("rate_limit = 5\n"),
        &["rate_limit", "is a section, not a value", "default_rpm"],
    );
    assert_fault(
        &refused("[context.deadline_ms]\nvalue = 1\n"),
        &["context.deadline_ms", "takes a value, not a section"],
    );
    assert_fault(
        &refused("[models]\npattern = 'x'\n"),
        &["models", "write [[models]]"],
    );
}

#[test]
fn wrong_types_are_all_reported_in_plain_words() {
    let message = refused(
        "env = 'prod'\n[context]\ndeadline_ms = '40'\ntimeout_ms = '45ms'\nhot_limit = -1\ncold_limit = 1.5\nenabled = 'true'\n\
         [server]\nlisten = 'here'\n[rate_limit]\ndefault_rpm = 5_000_000_000\nids = 3\n[log]\nlevel = 1\n",
    );
    assert_fault(
        &message,
        &[
            "env",
            "(ibex.toml:1)",
            "must be one of `development`, `staging`, `production`",
        ],
    );
    assert_fault(
        &message,
        &[
            "context.deadline_ms",
            "(ibex.toml:3)",
            "a whole number",
            "leave out the quotes",
        ],
    );
    assert_fault(
        &message,
        &["context.timeout_ms", "must be a whole number, not a text"],
    );
    assert_fault(&message, &["context.hot_limit", "must not be negative"]);
    assert_fault(
        &message,
        &["context.cold_limit", "must be a whole number, not a number"],
    );
    assert_fault(
        &message,
        &[
            "context.enabled",
            "must be true or false",
            "leave out the quotes",
        ],
    );
    assert_fault(&message, &["server.listen", "invalid socket address"]);
    assert_fault(&message, &["rate_limit.default_rpm", "is too large"]);
    assert_fault(&message, &["rate_limit.ids", "is a section"]);
    assert_fault(
        &message,
        &["log.level", "must be a text, not a whole number"],
    );
}

#[test]
fn syntax_errors_and_duplicates_do_not_hide_the_rest() {
    let message = refused(
        "[context]\nhot_limit = 1\nhot_limit = 2\ntimeout_ms = 45ms\n[[policy.rules]]\nmodel = no\neffect = 'deny'\n[log]\nlevl = 'info'\n",
    );
    assert_fault(&message, &["hot_limit", "(ibex.toml:3)", "set twice"]);
    assert_fault(&message, &["context.timeout_ms", "(ibex.toml:4)", "quotes"]);
    assert_fault(
        &message,
        &["policy.rules[0].model", "(ibex.toml:6)", "quotes"],
    );
    assert_fault(&message, &["log.levl", "did you mean log.level?"]);
    assert!(
        message.starts_with("the configuration has 4 faults:"),
        "{message}"
    );
}

#[test]
fn list_entries_name_their_missing_keys() {
    let message = refused(
        "[[models]]\npattern = 'a'\n[[models]]\nprovider = 'x'\n[[auth.issuers]]\nissuer = 'i'\n",
    );
    assert_fault(
        &message,
        &["models[1].pattern", "(ibex.toml:3)", "is missing"],
    );
    assert_fault(
        &message,
        &["auth.issuers[0].audience", "(ibex.toml:5)", "is missing"],
    );
    assert_fault(&message, &["auth.issuers[0].orgs", "is missing"]);
    assert_fault(
        &message,
        &["models[1].provider", "names no configured provider"],
    );
}

#[test]
fn unreadable_files_are_faults() {
    let missing = load(Some(Path::new("/nowhere/ibex.toml")), &Variables::new())
        .unwrap_err()
        .to_string();
    assert_fault(
        &missing,
        &["/nowhere/ibex.toml", "(--config)", "cannot be read"],
    );
    let named = load(None, &variables(&[("IBEX_CONFIG", "/nowhere/else.toml")]))
        .unwrap_err()
        .to_string();
    assert_fault(&named, &["/nowhere/else.toml", "(IBEX_CONFIG)"]);
    let org = "01890a5d-ac96-774b-bcce-b302099a8057";
    let key = refused(&format!(
        "[[auth.issuers]]\nissuer = 'i'\naudience = ['a']\norgs = ['{org}']\n[[auth.issuers.keys]]\nalgorithm = 'HS256'\nfile = '/nowhere/key'\n"
    ));
    assert_fault(
        &key,
        &[
            "auth.issuers[0].keys[0].file",
            "(ibex.toml:7)",
            "cannot be read",
        ],
    );
}

#[test]
fn secret_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let text = format!(
        "[[auth.issuers]]\nissuer = 'i'\naudience = ['a']\norgs = ['01890a5d-ac96-774b-bcce-b302099a8057']\n\
         [[auth.issuers.keys]]\nalgorithm = 'HS256'\nfile = '{}'\n",
        file.display()
    );
    let config = load_text(&text, &[]).unwrap().config;
    assert_eq!(
        config.auth.issuers[0].keys[0].secret.as_deref(),
        Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
    );
}

#[test]
fn the_embedders_key_may_lie_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "sk-embed\n").unwrap();
    let text = |file: &Path| {
        format!(
            "[embedder]\nkind = 'http'\nbase_url = 'http://127.0.0.1:9'\nmodel = 'm'\napi_key_file = '{}'\n",
            file.display()
        )
    };
    let embedder = load_text(&text(&file), &[]).unwrap().config.embedder;
    assert_eq!(embedder.api_key.as_deref(), Some("sk-embed"));
    assert!(!format!("{embedder:?}").contains("sk-embed"));
    let message = refused(&text(&folder.path().join("none")));
    assert_fault(&message, &["embedder.api_key_file", "cannot be read"]);
}

#[test]
fn variables_win_over_the_file_and_nest() {
    let env = [
        ("IBEX_CONTEXT__DEADLINE_MS", "30"),
        ("IBEX_PROVIDERS__LOCAL__BASE_URL", "http://127.0.0.1:9/v1"),
        ("IBEX_PROVIDERS__LOCAL__AUTH", "none"),
        ("IBEX_RATE_LIMIT__GLOBAL__RPM", "7"),
        ("IBEX_MODELS", "[{ pattern = 'x*', provider = 'local' }]"),
        ("IBEX_SERVER__LISTEN", "127.0.0.1:9110"),
        ("IBEX_ENV", "staging"),
        ("IBEX_LOG_LEVEL", "debug"),
        ("IBEX_MEMORY__MAX_BATCH", ""),
    ];
    let config = load_text("[context]\ndeadline_ms = 10\nhot_limit = 3\n", &env)
        .unwrap()
        .config;
    assert_eq!(
        (config.context.deadline_ms, config.context.hot_limit),
        (30, 3)
    );
    assert_eq!(config.providers["local"].base_url, "http://127.0.0.1:9/v1");
    assert_eq!(config.rate_limit.global.rpm, Some(7));
    assert_eq!(config.models[0].pattern, "x*");
    assert_eq!(
        (
            config.env,
            config.log.level.as_str(),
            config.memory.max_batch
        ),
        (Environment::Staging, "debug", 1_000)
    );
    assert_eq!(config.server.listen.port(), 9110);
}

#[test]
fn unknown_variables_are_refused_with_a_near_match() {
    let message = load_env(&[
        ("IBEX_RATE_LIMT", "5"),
        ("IBEX_RATE_LIMT__DEFAULT_RPM", "5"),
        ("IBEX_CONTEXT__DEADLINE", "5"),
        ("IBEX_SERVER_LISTEN", "127.0.0.1:1"),
        ("IBEX_ZZZZ", "1"),
        ("IBEX_CONTEXT", "on"),
        ("IBEX_CONTEXT__HOT_LIMIT", "40ms"),
        ("IBEX_CONTEXT__ENABLED", "yes"),
        ("IBEX_MODELS", "[{ pattern = ]"),
    ]);
    let message = message.unwrap_err().to_string();
    assert_fault(
        &message,
        &["IBEX_RATE_LIMT:", "did you mean IBEX_RATE_LIMIT__"],
    );
    assert_fault(
        &message,
        &[
            "IBEX_RATE_LIMT__DEFAULT_RPM:",
            "did you mean IBEX_RATE_LIMIT__DEFAULT_RPM?",
        ],
    );
    assert_fault(
        &message,
        &[
            "IBEX_CONTEXT__DEADLINE:",
            "did you mean IBEX_CONTEXT__DEADLINE_MS?",
        ],
    );
    assert_fault(
        &message,
        &["IBEX_SERVER_LISTEN:", "did you mean IBEX_SERVER__LISTEN?"],
    );
    assert_fault(&message, &["IBEX_ZZZZ:", "no such setting"]);
    assert_fault(&message, &["context ", "(IBEX_CONTEXT)", "is a section"]);
    assert_fault(
        &message,
        &[
            "context.hot_limit",
            "(IBEX_CONTEXT__HOT_LIMIT)",
            "whole number",
        ],
    );
    assert_fault(&message, &["context.enabled", "true or false"]);
    assert_fault(&message, &["models", "(IBEX_MODELS)", "not a TOML list"]);
}

#[test]
fn variables_of_clients_and_orchestrators_pass() {
    let env = [
        ("IBEX_TOKEN", "t"),
        ("IBEX_AGENT", "a"),
        ("IBEX_TEST_CACHE", "/tmp/y"),
        ("IBEX_STORE", "/tmp/x"),
        ("IBEX_SERVICE_HOST", "10.0.0.1"),
        ("IBEX_SERVICE_PORT_HTTP", "80"),
        ("IBEX_PORT", "tcp://10.0.0.1:80"),
        ("IBEX_PORT_80_TCP_ADDR", "10.0.0.1"),
    ];
    assert!(load_env(&env).is_ok());
}

#[test]
fn openai_variables_define_a_provider() {
    assert!(
        load_env(&[("OPENAI_API_KEY", "")])
            .unwrap()
            .providers
            .is_empty()
    );
    let config = load_env(&[("OPENAI_API_KEY", "sk-1")]).unwrap();
    assert_eq!(
        config.providers["openai"].base_url,
        "https://api.openai.com/v1"
    );
    let config = load_env(&[
        ("OPENAI_API_KEY", "sk-1"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
    ])
    .unwrap();
    assert_eq!(config.providers["openai"].base_url, "http://127.0.0.1:1/v1");
    let message = load_env(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")])
        .unwrap_err()
        .to_string();
    assert_fault(
        &message,
        &[
            "providers.openai.api_key",
            "(OPENAI_BASE_URL)",
            "OPENAI_API_KEY",
            "auth = \"none\"",
        ],
    );
}

#[test]
fn the_seeds_timeout_takes_three_spellings() {
    for text in ["60", "60ms", "0.06s"] {
        assert_eq!(
            load_env(&[("IBEX_CONTEXT_TIMEOUT", text)])
                .unwrap()
                .context
                .timeout_ms,
            60,
            "{text}"
        );
    }
    for text in ["fast", "-5", "5m", "nans", ""] {
        assert_eq!(
            load_env(&[("IBEX_CONTEXT_TIMEOUT", text)]).is_err(),
            !text.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn a_long_name_wins_over_a_short_one_and_says_so() {
    let loaded = load(
        None,
        &variables(&[
            ("IBEX_CONTEXT_DEADLINE_MS", "20"),
            ("IBEX_CONTEXT__DEADLINE_MS", "30"),
        ]),
    )
    .unwrap();
    assert_eq!(loaded.config.context.deadline_ms, 30);
    assert!(
        loaded
            .warnings
            .iter()
            .any(|warning| warning.contains("IBEX_CONTEXT_DEADLINE_MS")),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn unset_times_follow_the_set_ones() {
    let context = load_env(&[("IBEX_CONTEXT__DEADLINE_MS", "4")])
        .unwrap()
        .context;
    assert_eq!(
        (
            context.timeout_ms,
            context.cold_timeout_ms,
            context.hot_timeout_ms,
            context.directive_timeout_ms
        ),
        (45, 4, 4, 4)
    );
    let context = load_env(&[("IBEX_CONTEXT__DEADLINE_MS", "200")])
        .unwrap()
        .context;
    assert_eq!(
        (
            context.timeout_ms,
            context.cold_timeout_ms,
            context.hot_timeout_ms
        ),
        (205, 200, 15)
    );
    let context = load_env(&[("IBEX_CONTEXT_TIMEOUT", "30")]).unwrap().context;
    assert_eq!((context.deadline_ms, context.cold_timeout_ms), (30, 30));
}

#[test]
fn no_message_repeats_a_value() {
    let secret = "sk-very-secret";
    let text = format!(
        "env = '{secret}'\n[keys]\ntoken_digest = '{secret}'\n[server]\nlisten = '{secret}'\n[providers.a]\nbase_url = 'https://u:{secret}@h/'\n\
         api_key = '{secret}\\n'\nauth = '{secret}'\n[[models]]\npattern = '['\nprovider = '{secret}'\n[rate_limit]\ndefault_rpm = '{secret}'\n\
         [[policy.rules]]\norg = '{secret}'\nmodel = 'x'\neffect = 'allow'\n"
    );
    let message = load_text(
        &text,
        &[
            ("IBEX_CONTEXT__HOT_LIMIT", secret),
            ("IBEX_LOG_LEVEL", &format!("={secret}=")),
        ],
    )
    .unwrap_err();
    assert!(message.faults().len() >= 9, "{message}");
    assert!(!message.to_string().contains("very-secret"), "{message}");
    assert!(!format!("{message:?}").contains("very-secret"));
}

#[test]
fn faults_sort_by_place() {
    let message = refused("[log]\nlevl = 1\n[memory]\nmax = 1\n");
    let first = message.lines().nth(1).unwrap();
    assert!(first.contains("log.levl"), "{message}");
}

#[test]
fn the_collector_is_named_as_everywhere_else() {
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=sk-collector"),
        ("OTEL_SERVICE_NAME", "ferry"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
    ];
    let telemetry = load_text("", &env).unwrap().config.telemetry;
    assert_eq!(telemetry.endpoint.as_deref(), Some(env[0].1));
    assert_eq!(telemetry.headers.as_deref(), Some(env[1].1));
    assert_eq!(telemetry.service_name, "ferry");
    assert!((telemetry.sample_ratio - 0.25).abs() < f64::EPSILON);
    assert!(!format!("{telemetry:?}").contains("sk-collector"));
    let own = [env[2], ("IBEX_TELEMETRY__SERVICE_NAME", "own")];
    let own = load_text("", &own).unwrap().config.telemetry;
    assert_eq!(own.service_name, "own", "our own name wins");
}

#[test]
fn the_collectors_headers_may_lie_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    std::fs::write(&file, "api-key=sk-collector\n").unwrap();
    let text = |file: &Path| format!("[telemetry]\nheaders_file = '{}'\n", file.display());
    let telemetry = load_text(&text(&file), &[]).unwrap().config.telemetry;
    assert_eq!(telemetry.headers.as_deref(), Some("api-key=sk-collector"));
    let message = refused(&text(&folder.path().join("none")));
    assert_fault(&message, &["telemetry.headers_file", "cannot be read"]);
}
