//! Tokens of every kind of key, the ways to forge them, the mapping of claims, and key sets over time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use jsonwebtoken::jwk::Jwk;
use serde_json::{Value, json};
use tokio::time::advance;

use super::{Issuers, MAX_KEY_SET_BYTES};
use crate::auth::testing::{
    Bench, FakeKeySet, RSA_KID, RSA_PUBLIC_PEM, RSA_TOKEN, Signer, WEAK_RSA_PUBLIC_PEM, claims,
    issuer, rsa_config, rsa_jwk, start,
};
use crate::auth::{AuthError, Credential, Permissions, TokenClaims};
use crate::config::{AuthConfig, IssuerConfig, KeyConfig};
use crate::ids::{AgentId, OrgId, TokenId};

impl Bench {
    async fn check(&self, token: &str) -> Result<TokenClaims, AuthError> {
        self.verifier
            .verify(Credential::new(token).unwrap())
            .await
            .map(|claims| (*claims).clone())
    }

    async fn refused(&self, token: &str) -> bool {
        matches!(self.check(token).await, Err(AuthError::InvalidToken))
    }

    async fn unavailable(&self, token: &str) -> bool {
        matches!(self.check(token).await, Err(AuthError::Unavailable(_)))
    }
}

fn with(changes: &Value) -> Value {
    let mut all = claims();
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

fn without(name: &str) -> Value {
    let mut all = claims();
    all.as_object_mut().unwrap().remove(name);
    all
}

const SECRET: [u8; 32] = [9; 32];

fn plain() -> (Bench, Signer) {
    let signer = Signer::ed(None, 1);
    (Bench::with_keys(vec![signer.config()], |_| {}), signer)
}

#[tokio::test]
async fn every_algorithm_verifies_from_configuration_and_from_a_key_set() {
    let small = [Signer::ed(Some("ed"), 1), Signer::ec(Some("ec"), 2)];
    let mut configs: Vec<KeyConfig> = small.iter().map(Signer::config).collect();
    let symmetric = Signer::hs(Some("hs"), &SECRET);
    configs.extend([rsa_config(RSA_PUBLIC_PEM), symmetric.config()]);
    let fixed = Bench::with_keys(configs, |_| {});
    let mut jwks: Vec<Value> = small.iter().map(Signer::jwk).collect();
    jwks.push(rsa_jwk(RSA_PUBLIC_PEM));
    let fetched = Bench::with_key_set(&FakeKeySet::serving(&jwks));

    for bench in [&fixed, &fetched] {
        for signer in &small {
            assert_eq!(
                bench.check(&signer.sign(&claims())).await.unwrap().org(),
                bench.org
            );
        }
        assert_eq!(bench.check(RSA_TOKEN).await.unwrap().org(), bench.org);
    }
    assert!(fixed.check(&symmetric.sign(&claims())).await.is_ok());
}

#[tokio::test]
async fn a_public_key_used_as_a_shared_secret_signs_nothing() {
    let bench = Bench::with_keys(vec![rsa_config(RSA_PUBLIC_PEM)], |_| {});
    assert!(bench.check(RSA_TOKEN).await.is_ok());
    let forger = Signer::hs(Some(RSA_KID), RSA_PUBLIC_PEM.as_bytes());
    assert!(bench.refused(&forger.sign(&claims())).await);

    let fetched = Bench::with_key_set(&FakeKeySet::serving(&[rsa_jwk(RSA_PUBLIC_PEM)]));
    assert!(fetched.refused(&forger.sign(&claims())).await);
}

#[tokio::test]
async fn a_symmetric_key_in_a_key_set_is_no_key() {
    let symmetric = Signer::hs(Some("hs"), &SECRET);
    let bench = Bench::with_key_set(&FakeKeySet::serving(&[symmetric.jwk()]));
    assert!(bench.refused(&symmetric.sign(&claims())).await);
}

#[tokio::test]
async fn an_unsigned_token_is_refused_in_any_spelling() {
    let (bench, signer) = plain();
    let payload = signer.sign(&claims()).split('.').nth(1).unwrap().to_owned();
    for alg in ["none", "None", "NONE", ""] {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": alg, "typ": "JWT"}).to_string());
        assert!(
            bench.refused(&format!("{header}.{payload}.")).await,
            "{alg}"
        );
    }
    let signed = signer.sign(&claims());
    let stripped = signed.rsplit_once('.').unwrap().0;
    assert!(bench.refused(&format!("{stripped}.")).await);
}

#[tokio::test]
async fn a_key_set_serves_only_the_allowed_algorithms() {
    let (ec, ed) = (Signer::ec(Some("ec"), 1), Signer::ed(Some("ed"), 1));
    let source = FakeKeySet::serving(&[ec.jwk(), ed.jwk()]);
    let issuers = |org| {
        let mut issuer = issuer(org);
        issuer.jwks_url = Some("https://issuer.example/keys".to_owned());
        issuer.algorithms = vec!["ES256".to_owned()];
        vec![issuer]
    };
    let bench = Bench::with(
        AuthConfig::default(),
        issuers,
        &[(crate::auth::testing::ISSUER.to_owned(), source as _)].into(),
    );
    assert!(bench.check(&ec.sign(&claims())).await.is_ok());
    assert!(bench.refused(&ed.sign(&claims())).await);
}

#[tokio::test]
async fn keys_for_other_ends_or_too_weak_are_passed_over() {
    let signer = Signer::ed(Some("ed"), 1);
    let changed = |name: &str, value: Value| {
        let mut jwk = signer.jwk();
        jwk[name] = value;
        jwk
    };
    let useless = [
        changed("use", json!("enc")),
        changed("key_ops", json!(["sign"])),
        changed("alg", json!("ES256")),
        changed("x", json!("AAAA")),
        changed("crv", json!("X25519")),
        rsa_jwk(WEAK_RSA_PUBLIC_PEM),
        json!("not even an object"),
    ];
    let source = FakeKeySet::serving(&useless);
    let bench = Bench::with_key_set(&source);
    assert!(bench.refused(&signer.sign(&claims())).await);

    let good = Bench::with_key_set(&FakeKeySet::serving(
        &[&useless[..], &[signer.jwk()]].concat(),
    ));
    assert!(good.check(&signer.sign(&claims())).await.is_ok());
}

#[tokio::test]
async fn headers_that_bring_their_own_key_change_nothing() {
    let (bench, signer) = plain();
    let attacker = Signer::ed(None, 66);
    let mut header = attacker.header();
    header.jwk = Some(serde_json::from_value::<Jwk>(attacker.jwk()).unwrap());
    header.jku = Some("https://attacker.example/keys".to_owned());
    header.x5u = header.jku.clone();
    assert!(bench.refused(&attacker.sign_with(&header, &claims())).await);

    let mut honest = signer.header();
    honest.jku = Some("https://elsewhere.example".to_owned());
    assert!(
        bench
            .check(&signer.sign_with(&honest, &claims()))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_critical_extension_is_refused() {
    let (bench, signer) = plain();
    for critical in ["exp", "b64"] {
        let mut header = signer.header();
        header.crit = Some(vec![critical.to_owned()]);
        header.extras.insert("b64", true);
        assert!(
            bench.refused(&signer.sign_with(&header, &claims())).await,
            "{critical}"
        );
    }
}

#[tokio::test]
async fn a_key_serves_its_own_kid_only() {
    let (named, nameless) = (Signer::ed(Some("a"), 1), Signer::ed(None, 2));
    let bench = Bench::with_keys(vec![named.config(), nameless.config()], |_| {});
    assert!(bench.check(&named.sign(&claims())).await.is_ok());
    assert!(bench.check(&nameless.sign(&claims())).await.is_ok());
    assert!(
        bench
            .refused(&Signer::ed(Some("b"), 1).sign(&claims()))
            .await
    );
    assert!(bench.refused(&Signer::ed(None, 1).sign(&claims())).await);
    assert!(
        bench
            .refused(&Signer::ed(Some("a"), 2).sign(&claims()))
            .await
    );
}

#[tokio::test]
async fn issuer_audience_and_expiry_are_required_and_checked() {
    let (bench, signer) = plain();
    for name in ["iss", "aud", "exp"] {
        assert!(
            bench.refused(&signer.sign(&without(name))).await,
            "without {name}"
        );
    }
    let wrong = [
        json!({"iss": "https://attacker.example"}),
        json!({"iss": [crate::auth::testing::ISSUER]}),
        json!({"iss": null}),
        json!({"aud": "somebody else"}),
        json!({"aud": []}),
        json!({"aud": null}),
        json!({"exp": "1800000600"}),
        json!({"exp": -1}),
        json!({"exp": null}),
        json!({"nbf": "soon"}),
    ];
    for changes in wrong {
        assert!(
            bench.refused(&signer.sign(&with(&changes))).await,
            "{changes}"
        );
    }
    for aud in [json!("other"), json!(["x", "ibex"])] {
        assert!(
            bench
                .check(&signer.sign(&with(&json!({"aud": aud}))))
                .await
                .is_ok()
        );
    }
}

#[tokio::test]
async fn times_hold_within_the_leeway() {
    let (bench, signer) = plain();
    let now = start().as_second();
    let verdicts = [
        (json!({"exp": now - 29}), true),
        (json!({"exp": now - 30}), false),
        (json!({"exp": 1e300}), false),
        (json!({"exp": (now as f64) + 0.5}), true),
        (json!({"nbf": now + 30}), true),
        (json!({"nbf": now + 31}), false),
    ];
    for (changes, accepted) in verdicts {
        assert_eq!(
            bench.check(&signer.sign(&with(&changes))).await.is_ok(),
            accepted,
            "{changes}"
        );
    }
}

#[tokio::test]
async fn the_organisation_is_one_the_issuer_may_name() {
    let signer = Signer::ed(None, 1);
    let absent = OrgId::new();
    let one = Bench::with_keys(vec![signer.config()], |_| {});
    let two = Bench::with_keys(vec![signer.config()], |issuer| issuer.orgs.push(absent));
    let unlisted = one.store.add_org();
    let named = |org: &str| signer.sign(&with(&json!({"org_id": org})));

    assert!(one.check(&named(&one.org.to_string())).await.is_ok());
    assert!(
        one.refused(&named(&unlisted.to_string())).await,
        "not listed"
    );
    assert!(one.refused(&named("")).await);
    assert!(
        one.refused(&signer.sign(&with(&json!({"org_id": null}))))
            .await
    );
    assert!(two.check(&named(&two.org.to_string())).await.is_ok());
    assert!(
        two.refused(&signer.sign(&claims())).await,
        "unnamed although there are two"
    );
    assert!(
        two.refused(&named(&absent.to_string())).await,
        "listed, but the store has no such organisation"
    );
}

#[tokio::test]
async fn agent_and_user_claims_bind() {
    let signer = Signer::ed(None, 1);
    let bench = Bench::with_keys(vec![signer.config()], |issuer| {
        issuer.user_claim = Some("uid".to_owned())
    });
    let agent = AgentId::new();
    let bound = bench
        .check(&signer.sign(&with(&json!({"agent_id": agent.to_string(), "uid": "ann"}))))
        .await
        .unwrap();
    assert_eq!(bound.agent(), Some(agent));
    assert_eq!(bound.user().unwrap().as_str(), "ann");

    for uid in [json!(""), json!(null), json!(7), json!("a b")] {
        assert!(
            bench
                .refused(&signer.sign(&with(&json!({"uid": uid}))))
                .await,
            "{uid}"
        );
    }
    assert!(
        bench.refused(&signer.sign(&claims())).await,
        "configured but missing"
    );
    for agent in [json!(null), json!("robot"), json!([])] {
        assert!(
            bench
                .refused(&signer.sign(&with(&json!({"uid": "ann", "agent_id": agent}))))
                .await,
            "{agent}"
        );
    }
}

#[tokio::test]
async fn permissions_come_from_the_claim_or_the_default() {
    let signer = Signer::ed(None, 1);
    let bench = Bench::with_keys(vec![signer.config()], |issuer| {
        issuer.default_permissions = vec!["SessionRead".to_owned()]
    });
    let both = Permissions::MEMORY_READ.with(Permissions::MEMORY_WRITE);
    let read = [
        (
            json!([
                "MemoryRead",
                "MemoryWrite",
                "memoryDelete",
                "other:scope",
                3
            ]),
            both,
        ),
        (json!("MemoryRead  MemoryWrite openid"), both),
        (json!([]), Permissions::NONE),
        (json!(""), Permissions::NONE),
    ];
    for (claim, expected) in read {
        let got = bench
            .check(&signer.sign(&with(&json!({"permissions": claim}))))
            .await
            .unwrap();
        assert_eq!(got.permissions(), expected, "{claim}");
    }
    assert_eq!(
        bench
            .check(&signer.sign(&claims()))
            .await
            .unwrap()
            .permissions(),
        Permissions::SESSION_READ
    );
    for claim in [
        json!(null),
        json!(true),
        json!({"MemoryRead": true}),
        json!(u64::MAX),
    ] {
        assert!(
            bench
                .refused(&signer.sign(&with(&json!({"permissions": claim}))))
                .await,
            "{claim}"
        );
    }
}

#[tokio::test]
async fn the_token_identifier_follows_the_tokens_own() {
    let (bench, signer) = plain();
    let id = async |changes: Value| {
        bench
            .check(&signer.sign(&with(&changes)))
            .await
            .unwrap()
            .token()
    };
    let first = id(json!({"jti": "1", "exp": start().as_second() + 60})).await;
    assert_eq!(first, id(json!({"jti": "1"})).await);
    assert_ne!(first, id(json!({"jti": "2"})).await);
    assert_ne!(
        id(json!({"jti": "robot"})).await,
        id(json!({})).await,
        "a subject is not an identifier"
    );
    assert_eq!(
        id(json!({})).await,
        id(json!({"nbf": 0})).await,
        "the subject stands in"
    );
    assert!(super::is_derived(first));
    assert!(!super::is_derived(TokenId::new()));
}

#[tokio::test]
async fn two_issuers_do_not_share_keys() {
    let (mine, theirs) = (Signer::ed(None, 1), Signer::ed(None, 2));
    let issuers = |org| {
        let (mut first, mut second) = (issuer(org), issuer(org));
        first.keys = vec![mine.config()];
        second.keys = vec![theirs.config()];
        second.issuer = "https://second.example".to_owned();
        vec![first, second]
    };
    let bench = Bench::with(AuthConfig::default(), issuers, &[].into());
    assert!(bench.check(&mine.sign(&claims())).await.is_ok());
    assert!(bench.refused(&theirs.sign(&claims())).await);
    assert!(
        bench
            .check(&theirs.sign(&with(&json!({"iss": "https://second.example"}))))
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_is_fetched_once_the_floor_has_passed() {
    let (old, new) = (Signer::ed(Some("old"), 1), Signer::ed(Some("new"), 2));
    let source = FakeKeySet::serving(&[old.jwk()]);
    let bench = Bench::with_key_set(&source);
    assert!(bench.check(&old.sign(&claims())).await.is_ok());
    assert_eq!(source.fetches(), 1);

    source.serve(&[new.jwk()]);
    assert!(bench.refused(&new.sign(&claims())).await);
    assert_eq!(source.fetches(), 0, "the floor of ten seconds");
    advance(Duration::from_secs(10)).await;
    assert!(bench.check(&new.sign(&claims())).await.is_ok());
    assert_eq!(source.fetches(), 1);
    assert!(
        bench
            .refused(&old.sign(&with(&json!({"jti": "fresh"}))))
            .await,
        "the old key is gone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unknown_kids_fetches_once_per_floor() {
    let source = FakeKeySet::serving(&[Signer::ed(Some("a"), 1).jwk()]);
    let bench = Bench::with_key_set(&source);
    let flood = Signer::ed(Some("nobody"), 3);
    for round in 0..3 {
        let tokens: Vec<String> = (0..20)
            .map(|n| flood.sign(&with(&json!({"jti": format!("{round}-{n}")}))))
            .collect();
        let refused = join_all(tokens.iter().map(|token| bench.refused(token))).await;
        assert!(refused.iter().all(|refused| *refused));
        assert_eq!(source.fetches(), 1);
        advance(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_arrive_together_share_one_fetch() {
    let signer = Signer::ed(Some("a"), 1);
    let source = FakeKeySet::serving(&[signer.jwk()]);
    let bench = Bench::with_key_set(&source);
    let tokens: Vec<String> = (0..20)
        .map(|n| signer.sign(&with(&json!({"jti": n.to_string()}))))
        .collect();
    let results = join_all(tokens.iter().map(|token| bench.check(token))).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(source.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_set_is_refreshed_and_serves_on_while_that_fails() {
    let signer = Signer::ed(Some("a"), 1);
    let source = FakeKeySet::serving(&[signer.jwk()]);
    let bench = Bench::with_key_set(&source);
    let lasting = with(&json!({"exp": start().as_second() + 100_000}));
    let numbered = |n: u32| {
        let mut claims = lasting.clone();
        claims["jti"] = json!(n.to_string());
        signer.sign(&claims)
    };
    assert!(bench.check(&numbered(0)).await.is_ok());
    source.fetches();

    source.fail();
    advance(Duration::from_secs(299)).await;
    assert!(bench.check(&numbered(1)).await.is_ok());
    assert_eq!(source.fetches(), 0, "not old yet");
    advance(Duration::from_secs(1)).await;
    assert!(
        bench.check(&numbered(2)).await.is_ok(),
        "stale, with the source down"
    );
    assert_eq!(source.fetches(), 1);
    let unknown = Signer::ed(Some("b"), 2);
    assert!(
        bench.unavailable(&unknown.sign(&lasting)).await,
        "nobody can say that this key does not exist"
    );

    advance(Duration::from_secs(3_600)).await;
    assert!(bench.check(&numbered(3)).await.is_ok());
    advance(Duration::from_secs(1)).await;
    assert!(bench.unavailable(&numbered(4)).await, "past the tolerance");

    source.serve(&[signer.jwk()]);
    advance(Duration::from_secs(10)).await;
    assert!(
        bench.check(&numbered(4)).await.is_ok(),
        "an outage is not remembered as a refusal"
    );
}

#[tokio::test(start_paused = true)]
async fn unreadable_sets_do_not_replace_a_good_one() {
    let signer = Signer::ed(Some("a"), 1);
    let source = FakeKeySet::serving(&[signer.jwk()]);
    let bench = Bench::with_key_set(&source);
    assert!(bench.check(&signer.sign(&claims())).await.is_ok());
    let too_large = json!({"keys": [], "padding": "x".repeat(MAX_KEY_SET_BYTES)}).to_string();
    for (n, body) in [
        "<html>".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        too_large,
    ]
    .into_iter()
    .enumerate()
    {
        source.serve_raw(body);
        advance(Duration::from_secs(300)).await;
        assert!(
            bench
                .check(&signer.sign(&with(&json!({"jti": n.to_string()}))))
                .await
                .is_ok(),
            "{n}"
        );
    }
    source.serve(&[]);
    advance(Duration::from_secs(300)).await;
    assert!(
        bench
            .refused(&signer.sign(&with(&json!({"jti": "last"}))))
            .await,
        "an empty set is the issuer's word"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_source_delays_but_does_not_stop_known_keys() {
    let signer = Signer::ed(Some("a"), 1);
    let source = FakeKeySet::serving(&[signer.jwk()]);
    let bench = Bench::with_key_set(&source);
    assert!(bench.check(&signer.sign(&claims())).await.is_ok());
    source.hanging.store(true, Ordering::Relaxed);
    advance(Duration::from_secs(300)).await;
    assert!(
        bench
            .check(&signer.sign(&with(&json!({"jti": "1"}))))
            .await
            .is_ok()
    );
    assert!(
        bench
            .unavailable(&Signer::ed(Some("b"), 1).sign(&claims()))
            .await
    );

    // The fetch that nobody finished is given up, so the next one may succeed.
    source.hanging.store(false, Ordering::Relaxed);
    source.fetches();
    advance(Duration::from_secs(10)).await;
    assert!(
        bench
            .refused(&Signer::ed(Some("c"), 1).sign(&claims()))
            .await
    );
    assert_eq!(source.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_outlives_the_request_that_began_it() {
    let signer = Signer::ed(Some("a"), 1);
    let source = FakeKeySet::serving(&[signer.jwk()]);
    let bench = Bench::with_key_set(&source);
    let token = signer.sign(&claims());
    {
        let mut first = std::pin::pin!(bench.check(&token));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
    }
    assert!(
        bench.check(&token).await.is_ok(),
        "the next request drives it on"
    );
    assert_eq!(source.fetches(), 1);
}

fn faults_of(change: impl FnOnce(&mut IssuerConfig)) -> String {
    let mut one = issuer(OrgId::new());
    one.keys = vec![Signer::ed(None, 1).config()];
    change(&mut one);
    let config = AuthConfig {
        issuers: vec![one],
        ..AuthConfig::default()
    };
    Issuers::new(&config, &[].into()).map_or_else(|error| error.to_string(), |_| String::new())
}

fn expect(faults: &[(String, &str)]) {
    for (got, expected) in faults {
        assert!(got.contains(expected), "{expected:?} is not in {got:?}");
    }
}

#[test]
fn keys_that_are_empty_weak_or_of_another_kind_stop_the_start() {
    fn key(algorithm: &str, secret: Option<&[u8]>, pem: Option<&str>) -> String {
        let key = KeyConfig {
            kid: None,
            algorithm: algorithm.to_owned(),
            secret: secret.map(|bytes| STANDARD.encode(bytes)),
            public_key_pem: pem.map(str::to_owned),
            file: None,
        };
        faults_of(|issuer| issuer.keys = vec![key])
    }

    assert_eq!(key("HS256", Some(&SECRET), None), "");
    expect(&[
        (key("HS256", Some(&[9; 31]), None), "31 bytes"),
        (key("HS256", Some(&[]), None), "empty"),
        (key("HS256", None, None), "exactly one of"),
        (key("HS256", None, Some(RSA_PUBLIC_PEM)), "takes secret"),
        (key("RS256", Some(&SECRET), None), "takes public_key_pem"),
        (key("RS256", None, Some(WEAK_RSA_PUBLIC_PEM)), "too weak"),
        (key("ES256", None, Some(RSA_PUBLIC_PEM)), "not a PEM public"),
        (key("none", None, Some(RSA_PUBLIC_PEM)), "is none of"),
        (key("HS512", Some(&SECRET), None), "is none of"),
    ]);
}

#[test]
fn an_issuer_that_would_accept_too_much_stops_the_start() {
    let set = |algorithms: &[&str]| {
        faults_of(|issuer| {
            issuer.keys.clear();
            issuer.jwks_url = Some("https://issuer.example/keys".to_owned());
            issuer.algorithms = algorithms.iter().map(|&name| name.to_owned()).collect();
        })
    };

    assert_eq!(faults_of(|_| {}), "");
    expect(&[
        (faults_of(|it| it.keys.clear()), "keys: exactly one of"),
        (
            faults_of(|it| it.jwks_url = Some("x".to_owned())),
            "keys: exactly one of",
        ),
        (faults_of(|it| it.audience.clear()), "audience"),
        (
            faults_of(|it| it.audience = vec![String::new()]),
            "audience",
        ),
        (faults_of(|it| it.orgs.clear()), "orgs"),
        (
            faults_of(|it| it.issuer = " ".to_owned()),
            "auth.issuers[0].issuer",
        ),
        (faults_of(|it| it.leeway_s = 301), "leeway_s"),
        (
            faults_of(|it| it.default_permissions = vec!["All".to_owned()]),
            "\"All\"",
        ),
        (
            faults_of(|it| it.user_claim = Some(String::new())),
            "user_claim",
        ),
        (set(&["ES256", "HS256"]), "algorithms"),
        (set(&[]), "jwks_url: no source"),
    ]);
    let both = faults_of(|it| {
        it.orgs.clear();
        it.leeway_s = 999;
    });
    assert!(
        both.contains("orgs") && both.contains("leeway_s"),
        "all at once: {both}"
    );
}
