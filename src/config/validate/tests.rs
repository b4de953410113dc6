//! One impossible setting at a time: exactly its own fault comes back.

use crate::config::{Config, Environment};

use super::validate;

const ORG: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The only fault of `text`, as `key: reason`.
#[track_caller]
fn only_fault(text: &str) -> String {
    let config: Config = toml::from_str(text).unwrap();
    let faults = validate(&config);
    assert_eq!(faults.len(), 1, "{text}: {faults:?}");
    faults[0].to_string()
}

#[track_caller]
fn assert_only(cases: &[(&str, &str, &str)]) {
    for (text, key, reason) in cases {
        let fault = only_fault(text);
        assert!(
            fault.starts_with(&format!("{key}: ")) && fault.contains(reason),
            "{text}: {fault}"
        );
    }
}

#[test]
fn the_default_is_valid() {
    assert_eq!(validate(&Config::default()), []);
}

#[test]
fn context_that_cannot_work_is_refused() {
    assert_only(&[
        (
            "[context]\ncold_timeout_ms = 41",
            "context.cold_timeout_ms",
            "not be above context.deadline_ms (40)",
        ),
        (
            "[context]\nhot_timeout_ms = 0",
            "context.hot_timeout_ms",
            "0 would",
        ),
        (
            "[context]\ntimeout_ms = 39",
            "context.timeout_ms",
            "at least context.deadline_ms (40)",
        ),
        (
            "[context]\nrelevance_floor = 0.5",
            "context.relevance_floor",
            "below 0.5",
        ),
        (
            "[context]\nrelevance_floor = nan",
            "context.relevance_floor",
            "below 0.5",
        ),
        (
            "[context]\nrelevance_floor = -0.1",
            "context.relevance_floor",
            "at least 0",
        ),
        (
            "[context]\nformatter_nonce_bytes = 0",
            "context.formatter_nonce_bytes",
            "1 to 64",
        ),
        (
            "[context]\nformatter_nonce_bytes = 65",
            "context.formatter_nonce_bytes",
            "1 to 64",
        ),
        (
            "[context]\nreserve_min = 5000",
            "context.reserve_min",
            "context.reserve_max",
        ),
        (
            "[memory]\nmax_batch = 0",
            "memory.max_batch",
            "0 would refuse",
        ),
        (
            "[memory]\nindex_bytes = 1024",
            "memory.index_bytes",
            "less than 16 MiB",
        ),
    ]);
}

#[test]
fn layouts_and_sessions_that_cannot_work_are_refused() {
    assert_only(&[
        (
            "[context]\nlayout = \"assembled\"\nsnapshot_tokens = 1",
            "context.snapshot_tokens",
            "assembled layout",
        ),
        (
            "[context]\nlayout = \"assembled\"\nsnapshot_tokens = 0\nplatform_policy = \"Be kind.\"",
            "context.platform_policy",
            "assembled layout",
        ),
        (
            "[context]\nsnapshot_items = 0",
            "context.snapshot_items",
            "unused",
        ),
        (
            "[context]\nplatform_policy = \"Be kind to everybody.\"\nplatform_policy_tokens = 3",
            "context.platform_policy",
            "PREFIX_TOO_LARGE",
        ),
        ("[session]\nidle_s = 0", "session.idle_s", "0 would"),
        ("[session]\nmax_lanes = 0", "session.max_lanes", "0 would"),
        ("[session]\nmax_bytes = 0", "session.max_bytes", "0 would"),
        (
            "[session]\nretention_days = 0",
            "session.retention_days",
            "0 would",
        ),
    ]);
}

#[test]
fn limits_that_refuse_everything_are_refused() {
    assert_only(&[
        (
            "[server]\nmax_messages = 0",
            "server.max_messages",
            "0 would refuse",
        ),
        ("[server]\norg_share = 0.0", "server.org_share", "above 0"),
        ("[server]\norg_share = 1.1", "server.org_share", "at most 1"),
        ("[server]\norg_share = nan", "server.org_share", "above 0"),
        (
            "[server]\nmax_bytes_in_flight = 1_000_000",
            "server.max_bytes_in_flight",
            "server.max_body_bytes",
        ),
        (
            "[upstream]\nconnect_timeout_ms = 0",
            "upstream.connect_timeout_ms",
            "0 would refuse",
        ),
        (
            "[rate_limit]\ndefault_rpm = 0",
            "rate_limit.default_rpm",
            "0 would refuse everything; leave it out",
        ),
        (
            "[rate_limit]\ndefault_tpm = 0",
            "rate_limit.default_tpm",
            "leave it out",
        ),
        (
            "[rate_limit.token]\nstreams = 0",
            "rate_limit.token.streams",
            "leave it out",
        ),
        (
            "[rate_limit.ids.acme]\nrpm = 1",
            "rate_limit.ids.acme",
            "a UUID",
        ),
        ("[log]\nlevel = 'ibex=loud'", "log.level", "error, warn"),
        (
            "[keys]\ntoken_digest = 'c2hvcnQ='",
            "keys.token_digest",
            "exactly 32 bytes",
        ),
    ]);
    let zero = format!("[rate_limit.ids.{ORG}]\ntpm = 0");
    assert_only(&[(&zero, &format!("rate_limit.ids.{ORG}.tpm"), "leave it out")]);
}

#[test]
fn providers_that_cannot_be_called_are_refused() {
    let provider = |url: &str| format!("[providers.a]\nbase_url = '{url}'\napi_key = 'k'");
    let urls = [
        ("api.openai.com/v1", "is not a URL"),
        ("ftp://h/v1", "http:// or https://"),
        ("https://user:pw@h/v1", "credentials"),
        ("https://key@h/v1", "credentials"),
        ("https://h/v1#x", "fragment"),
    ];
    for (url, reason) in urls {
        assert_only(&[(&provider(url), "providers.a.base_url", reason)]);
    }
    let production = |url: &str| format!("env = 'production'\n{}", provider(url));
    assert_only(&[(
        &production("http://10.0.0.1/v1"),
        "providers.a.base_url",
        "https outside development",
    )]);
    for url in [
        "http://127.0.0.1:1/v1",
        "http://localhost:1/v1",
        "http://[::1]:1/v1",
        "https://h/v1",
    ] {
        assert_eq!(
            validate(&toml::from_str(&production(url)).unwrap()),
            [],
            "{url}"
        );
    }
    assert_only(&[
        (
            "[providers.a]\nbase_url = 'https://h'",
            "providers.a.api_key",
            "IBEX_PROVIDERS__A__API_KEY, or auth = \"none\"",
        ),
        (
            "[providers.openai]\nbase_url = 'https://h'",
            "providers.openai.api_key",
            "OPENAI_API_KEY",
        ),
        (
            "[providers.a]\nbase_url = 'https://h'\napi_key = \"k\\n\"",
            "providers.a.api_key",
            "line break",
        ),
        (
            "[providers.A]\nbase_url = 'https://h'\nauth = 'none'",
            "providers.A",
            "lower-case",
        ),
    ]);
}

#[test]
fn exactly_one_of_several_providers_is_the_default() {
    let text = |a: bool, b: bool| {
        format!(
            "[providers.a]\nbase_url = 'https://h'\nauth = 'none'\ndefault = {a}\n[providers.b]\nbase_url = 'https://h'\nauth = 'none'\ndefault = {b}\n"
        )
    };
    assert_only(&[
        (&text(false, false), "providers", "2 providers (a, b)"),
        (&text(true, true), "providers", "exactly one"),
    ]);
    assert_eq!(validate(&toml::from_str(&text(true, false)).unwrap()), []);
}

#[test]
fn models_and_rules_must_make_sense() {
    assert_only(&[
        (
            "[[models]]\npattern = 'a'\nprovider = 'openai'",
            "models[0].provider",
            "no configured provider",
        ),
        (
            "[providers.openai]\nbase_url = 'https://h'\nauth = 'none'\n[[models]]\npattern = 'a'\nprovider = 'opanai'",
            "models[0].provider",
            "did you mean openai?",
        ),
        (
            "[[models]]\npattern = 'a['",
            "models[0].pattern",
            "is not a glob",
        ),
        (
            "[[models]]\npattern = ''",
            "models[0].pattern",
            "must not be empty",
        ),
        (
            "[[models]]\npattern = 'a'\ncontext_window = 0",
            "models[0].context_window",
            "0 would",
        ),
        (
            "[[policy.rules]]\nmodel = '{a'\neffect = 'deny'",
            "policy.rules[0].model",
            "is not a glob",
        ),
    ]);
}

/// An issuer with good claims and the given further lines.
fn issuer(lines: &str) -> String {
    let claims = [
        ("issuer", "'https://i'".to_owned()),
        ("audience", "['ibex']".to_owned()),
        ("orgs", format!("['{ORG}']")),
    ];
    let missing = claims
        .iter()
        .filter(|(key, _)| !lines.lines().any(|line| line.starts_with(key)));
    let claims: Vec<String> = missing
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    format!("[[auth.issuers]]\n{}\n{lines}\n", claims.join("\n"))
}

const KEY_SET: &str = "jwks_url = 'https://i/keys'\nalgorithms = ['RS256']";

#[test]
fn issuers_with_one_key_source_are_accepted() {
    let hs256 = format!("[[auth.issuers.keys]]\nalgorithm = 'HS256'\nsecret = '{SECRET}'");
    for lines in [
        "jwks_url = 'https://i/keys'",
        KEY_SET,
        hs256.as_str(),
        "[[auth.issuers.keys]]\nalgorithm = 'EdDSA'\npublic_key_pem = '-----BEGIN PUBLIC KEY-----'",
    ] {
        assert_eq!(
            validate(&toml::from_str(&issuer(lines)).unwrap()),
            [],
            "{lines}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of refused issuers")]
fn issuers_that_would_accept_too_much_are_refused() {
    let cases = [
        (
            String::new(),
            "auth.issuers[0].keys",
            "one of keys and jwks_url",
        ),
        (
            format!("{KEY_SET}\n[[auth.issuers.keys]]\nalgorithm = 'HS256'\nsecret = '{SECRET}'"),
            "auth.issuers[0].jwks_url",
            "not both",
        ),
        (
            "jwks_url = 'https://i/keys'\nalgorithms = ['RS256', 'HS256']".to_owned(),
            "auth.issuers[0].algorithms",
            "RS256",
        ),
        (
            "jwks_url = 'https://i/keys'\nalgorithms = ['none']".to_owned(),
            "auth.issuers[0].algorithms",
            "RS256",
        ),
        (
            "jwks_url = 'http://i/keys'\nalgorithms = ['RS256']".to_owned(),
            "auth.issuers[0].jwks_url",
            "must be https",
        ),
        (
            format!("audience = []\n{KEY_SET}"),
            "auth.issuers[0].audience",
            "at least one",
        ),
        (
            format!("orgs = []\n{KEY_SET}"),
            "auth.issuers[0].orgs",
            "at least one",
        ),
        (
            format!("user_claim = ''\n{KEY_SET}"),
            "auth.issuers[0].user_claim",
            "not be empty",
        ),
        (
            format!("leeway_s = 301\n{KEY_SET}"),
            "auth.issuers[0].leeway_s",
            "at most 300",
        ),
        (
            format!("default_permissions = ['Chat']\n{KEY_SET}"),
            "auth.issuers[0].default_permissions",
            "MemoryRead",
        ),
        (
            "[[auth.issuers.keys]]\nalgorithm = 'HS256'\nsecret = 'c2hvcnQ='".to_owned(),
            "auth.issuers[0].keys[0].secret",
            "32 bytes",
        ),
        (
            "[[auth.issuers.keys]]\nalgorithm = 'HS256'".to_owned(),
            "auth.issuers[0].keys[0]",
            "exactly one of",
        ),
        (
            format!("[[auth.issuers.keys]]\nalgorithm = 'RS256'\nsecret = '{SECRET}'"),
            "auth.issuers[0].keys[0].secret",
            "public key",
        ),
        (
            format!("[[auth.issuers.keys]]\nalgorithm = 'none'\nsecret = '{SECRET}'"),
            "auth.issuers[0].keys[0].algorithm",
            "HS256, RS256",
        ),
    ];
    for (lines, key, reason) in &cases {
        assert_only(&[(&issuer(lines), key, reason)]);
    }
    assert_only(&[(
        &format!("{}{}", issuer(KEY_SET), issuer(KEY_SET)),
        "auth.issuers[1].issuer",
        "same issuer",
    )]);
}

#[test]
fn a_loopback_key_set_is_for_development_only() {
    let mut config: Config = toml::from_str(&issuer(
        "jwks_url = 'http://127.0.0.1:9/keys'\nalgorithms = ['RS256']",
    ))
    .unwrap();
    assert_eq!(validate(&config), []);
    config.env = Environment::Production;
    assert_eq!(validate(&config).len(), 1);
}

/// An http embedder that could be asked, with more lines.
fn embedder(lines: &str) -> String {
    format!("[embedder]\nkind = 'http'\nbase_url = 'http://127.0.0.1:9'\nmodel = 'm'\n{lines}")
}

#[test]
fn an_embedder_that_cannot_work_is_refused() {
    let whole: Config = toml::from_str(&embedder("")).unwrap();
    assert_eq!(validate(&whole), []);
    let with = [
        embedder("api_key = 'a b'"),
        embedder("dimensions = 0"),
        embedder("batch = 0"),
        embedder("max_chars = 0"),
        embedder("timeout_ms = 0"),
        embedder("document_timeout_ms = 5"),
        embedder("near_duplicate = 1.5"),
        embedder("unrelated = 0.8"),
        embedder("related = nan"),
    ];
    let expected = [
        ("embedder.api_key", "no header can carry"),
        ("embedder.dimensions", "between 1 and"),
        ("embedder.batch", "between 1 and 2048"),
        ("embedder.max_chars", "nothing to embed"),
        ("embedder.timeout_ms", "no time"),
        ("embedder.document_timeout_ms", "not be below"),
        ("embedder.near_duplicate", "at most 1"),
        ("embedder.related", "above embedder.unrelated"),
    ];
    for (text, (key, reason)) in with.iter().zip(expected) {
        assert_only(&[(text, key, reason)]);
    }
    let nan: Config = toml::from_str(&with[8]).unwrap();
    assert!(!validate(&nan).is_empty());
    assert_only(&[
        (
            "[embedder]\nkind = 'http'\nmodel = 'm'",
            "embedder.base_url",
            "is missing",
        ),
        (
            "[embedder]\nkind = 'http'\nbase_url = 'http://127.0.0.1:9'",
            "embedder.model",
            "is missing",
        ),
        (
            "[embedder]\nunrelated = -1.5",
            "embedder.unrelated",
            "must be a cosine",
        ),
        (
            "env = 'production'\n[embedder]\nkind = 'http'\nmodel = 'm'\nbase_url = 'http://embed.test'",
            "embedder.base_url",
            "https outside development",
        ),
    ]);
    let forgotten: Config =
        toml::from_str("[embedder]\nbase_url = 'http://127.0.0.1:9'\nrelated = 0.9").unwrap();
    let warnings = super::warnings(&forgotten).join("\n");
    assert!(warnings.contains("base_url, related"), "{warnings}");
    if !cfg!(feature = "onnx") {
        let fault = only_fault("[embedder]\nkind = 'onnx'");
        assert!(fault.contains("--features onnx"), "{fault}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one list of faults")]
fn engines_that_replicas_share_are_held_to_what_can_work() {
    let key = "[keys]\ntoken_digest = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='\n";
    let postgres = "[postgres]\nurl = 'postgres://ibex@127.0.0.1/ibex'\n";
    let redis = "[redis]\nurls = ['redis://127.0.0.1']\n";
    let whole: Config = toml::from_str(&format!("{postgres}{redis}{key}")).unwrap();
    assert_eq!(validate(&whole), []);
    for (text, at, why) in [
        (
            format!("{postgres}{redis}"),
            "keys.token_digest",
            "every replica",
        ),
        (
            format!("{key}[postgres]\nurl = 'mysql://x'"),
            "postgres.url",
            "postgres://",
        ),
        (
            format!("{key}{postgres}role = 'a; b'"),
            "postgres.role",
            "lower-case",
        ),
        (
            format!("{key}{postgres}max_connections = 1"),
            "postgres.max_connections",
            "at least 2",
        ),
        (
            format!("{key}{postgres}fence_timeout_ms = 0"),
            "postgres.fence_timeout_ms",
            "no time",
        ),
        (
            format!("{key}{postgres}ef_search = 2000"),
            "postgres.ef_search",
            "between",
        ),
        (
            format!("{key}{postgres}url_file = 'f'"),
            "postgres.url_file",
            "which one",
        ),
        (
            format!("{redis}urls_file = 'f'"),
            "redis.urls_file",
            "which ones",
        ),
        (
            "[redis]\nurls = ['http://x']".to_owned(),
            "redis.urls",
            "redis://",
        ),
        (
            format!("{redis}timeout_ms = 0"),
            "redis.timeout_ms",
            "no time",
        ),
        (format!("{redis}prefix = 'a:b'"), "redis.prefix", "letters"),
        (
            "[rate_limit]\nreplicas = 0".to_owned(),
            "rate_limit.replicas",
            "at least one",
        ),
        (
            "[rate_limit]\nreplicas = 2".to_owned(),
            "rate_limit.replicas",
            "local",
        ),
        (
            format!("env = 'production'\n{key}{postgres}"),
            "redis.urls",
            "every rate in full",
        ),
    ] {
        let config: Config = toml::from_str(&text).unwrap();
        let faults = validate(&config);
        assert!(
            faults.iter().any(|f| f.key == at && f.reason.contains(why)),
            "{text}\n{faults:?}"
        );
    }
}

#[test]
fn urls_of_engines_are_shown_to_nobody() {
    let text =
        "[postgres]\nurl = 'postgres://ibex:hush@db/ibex'\n[redis]\nurls = ['redis://:hush@cache']";
    let config: Config = toml::from_str(text).unwrap();
    assert!(!format!("{config:?}").contains("hush"));
}

#[test]
fn a_collector_that_cannot_be_asked_is_refused() {
    assert_only(&[
        (
            "[telemetry]\nendpoint = 'collector:4317'",
            "telemetry.endpoint",
            "http or https",
        ),
        (
            "[telemetry]\nendpoint = 'http://user:word@collector:4318'",
            "telemetry.endpoint",
            "telemetry.headers is for them",
        ),
        (
            "[telemetry]\nendpoint = 'http://collector:4318'\nheaders = 'key'",
            "telemetry.headers",
            "name=value",
        ),
        (
            "[telemetry]\nheaders = 'a=b'\nheaders_file = 'f'",
            "telemetry.headers_file",
            "one of them",
        ),
        (
            "[telemetry]\nsample_ratio = 1.5",
            "telemetry.sample_ratio",
            "between 0 and 1",
        ),
        (
            "[telemetry]\nsample_ratio = nan",
            "telemetry.sample_ratio",
            "between 0 and 1",
        ),
        ("[telemetry]\nqueue = 0", "telemetry.queue", "at least 1"),
    ]);
}
