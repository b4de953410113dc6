//! Credentials through the verifier of a store with two tenants and four issuers.
//!
//! The first byte chooses how the token is made: as it stands, a good one with bytes changed, or signed over the claims that the rest holds.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use ibex::auth::jwt::{KeySetError, KeySetSource};
use ibex::auth::pat::TokenKey;
use ibex::auth::{Credential, TokenClaims, Verifier};
use ibex::config::{AuthConfig, IssuerConfig, KeyConfig};
use ibex::ids::{AgentId, OrgId};
use ibex::seams::Clock;
use ibex::store::sqlite::SqliteStore;
use ibex::store::{Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus};
use jiff::Timestamp;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

use super::input::Input;
use super::service::Idle;

/// When every token is looked at.
const NOW: i64 = 1_800_000_000;
/// What a token may be past its time, in seconds.
const LEEWAY: f64 = 30.0;
/// A public key that is no secret: signing with its text must prove nothing.
const RSA_PEM: &str = include_str!("../../../src/auth/testdata/rsa.pub.pem");
/// The first tenant, the second, and its agent.
const ORGS: [[u8; 16]; 2] = [[0x11; 16], [0x22; 16]];
const AGENTS: [[u8; 16]; 2] = [[0x1a; 16], [0x2a; 16]];

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(NOW).expect("a time")
    }
}

/// A key set that is what somebody says it is.
#[derive(Debug)]
struct Told(Bytes);

#[async_trait]
impl KeySetSource for Told {
    async fn fetch(&self) -> Result<Bytes, KeySetError> {
        Ok(self.0.clone())
    }
}

/// A key with which the harness signs.
struct Signer {
    kid: Option<&'static str>,
    algorithm: Algorithm,
    key: EncodingKey,
    secret: Option<Vec<u8>>,
    /// The issuer whose key it is, and whom that issuer may speak for; nobody's for the last.
    issuer: &'static str,
    orgs: &'static [usize],
}

impl Signer {
    fn hs(
        kid: Option<&'static str>,
        secret: &[u8],
        issuer: &'static str,
        orgs: &'static [usize],
    ) -> Self {
        Self {
            kid,
            algorithm: Algorithm::HS256,
            key: EncodingKey::from_secret(secret).expect("a secret"),
            secret: Some(secret.to_vec()),
            issuer,
            orgs,
        }
    }

    fn ed(
        kid: Option<&'static str>,
        seed: u8,
        issuer: &'static str,
        orgs: &'static [usize],
    ) -> Self {
        const PKCS8: [u8; 16] =
            *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        let der = [&PKCS8[..], &[seed; 32]].concat();
        Self {
            kid,
            algorithm: Algorithm::EdDSA,
            key: EncodingKey::from_ed_der(&der),
            secret: None,
            issuer,
            orgs,
        }
    }

    fn sign(&self, message: &str) -> String {
        crypto::sign(message.as_bytes(), &self.key, self.algorithm).expect("a signature")
    }

    fn header(&self) -> String {
        let mut header = json!({"alg": self.algorithm, "typ": "JWT"});
        if let Some(kid) = self.kid {
            header["kid"] = kid.into();
        }
        header.to_string()
    }

    fn token(&self, header: &[u8], claims: &[u8]) -> String {
        let message = [header, claims]
            .map(|part| URL_SAFE_NO_PAD.encode(part))
            .join(".");
        format!("{message}.{}", self.sign(&message))
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a public key");
        jwk.common.key_id = self.kid.map(str::to_owned);
        serde_json::to_value(jwk).expect("JSON")
    }
}

/// Issuers by their place in [`Bench::signers`]; the one after them is nobody's.
const ISSUERS: [&str; 4] = [
    "https://a.example",
    "https://b.example",
    "https://c.example",
    "https://d.example",
];

struct Bench {
    runtime: Runtime,
    verifier: Verifier,
    idle: Idle,
    signers: Vec<Signer>,
}

thread_local! {
    /// Never dropped: a runtime may not be at the end of a thread.
    static BENCH: ManuallyDrop<Bench> = ManuallyDrop::new(Bench::start());
}

fn signers() -> Vec<Signer> {
    vec![
        Signer::hs(Some("hs"), &[9; 32], ISSUERS[0], &[0]),
        Signer::ed(Some("ed"), 1, ISSUERS[1], &[1]),
        Signer::hs(None, &[8; 40], ISSUERS[2], &[0, 1]),
        Signer::ed(Some("d"), 2, ISSUERS[3], &[0]),
        Signer::hs(Some("rsa"), RSA_PEM.as_bytes(), "", &[]),
    ]
}

impl Bench {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let idle = runtime.block_on(async { Idle::new() });
        runtime.block_on(tenants(&idle.store));
        let signers = signers();
        let set = json!({"keys": [signers[3].jwk()]}).to_string();
        let verifier = verifier(&idle.store, &signers, set.into());
        Self {
            runtime,
            verifier,
            idle,
            signers,
        }
    }
}

async fn tenants(store: &SqliteStore) {
    let created_at = Still.now();
    for (org, agent) in ORGS.into_iter().zip(AGENTS) {
        let (org, agent) = (OrgId::from_bytes(org), AgentId::from_bytes(agent));
        let row = Org {
            id: org,
            name: org.to_string(),
            status: OrgStatus::Active,
            created_at,
        };
        store.create_org(row).await.expect("an organisation");
        let row = Agent {
            id: agent,
            org,
            name: agent.to_string(),
            status: AgentStatus::Active,
            capture: CaptureScope::Off,
            created_at,
        };
        store.create_agent(row).await.expect("an agent");
    }
}

/// A verifier whose last issuer has this key set.
fn verifier(store: &Arc<SqliteStore>, signers: &[Signer], set: Bytes) -> Verifier {
    let org = |at: &usize| OrgId::from_bytes(ORGS[*at]);
    let issuer = |at: usize| {
        let orgs: Vec<OrgId> = signers[at].orgs.iter().map(org).collect();
        let text = json!({"issuer": ISSUERS[at], "audience": ["ibex", "other"], "orgs": orgs});
        serde_json::from_value::<IssuerConfig>(text).expect("an issuer")
    };
    let key = |signer: &Signer| KeyConfig {
        kid: signer.kid.map(str::to_owned),
        algorithm: if signer.secret.is_some() {
            "HS256"
        } else {
            "EdDSA"
        }
        .to_owned(),
        secret: signer.secret.as_ref().map(|secret| STANDARD.encode(secret)),
        public_key_pem: signer.secret.is_none().then(|| pem(signer)),
        file: None,
    };
    let mut issuers: Vec<IssuerConfig> = (0..ISSUERS.len()).map(issuer).collect();
    for (issuer, signer) in issuers.iter_mut().zip(signers).take(3) {
        issuer.keys = vec![key(signer)];
    }
    issuers[0].keys.push(KeyConfig {
        kid: Some("rsa".to_owned()),
        algorithm: "RS256".to_owned(),
        secret: None,
        public_key_pem: Some(RSA_PEM.to_owned()),
        file: None,
    });
    issuers[2].user_claim = Some("sub".to_owned());
    issuers[2].default_permissions = vec!["SessionCreate".to_owned()];
    issuers[3].jwks_url = Some("https://d.example/keys".to_owned());
    let config = AuthConfig {
        issuers,
        ..AuthConfig::default()
    };
    let source: Arc<dyn KeySetSource> = Arc::new(Told(set));
    let sources = HashMap::from([(ISSUERS[3].to_owned(), source)]);
    let token_key = TokenKey::new(&[42; 32]).expect("a key");
    Verifier::new(store.clone(), token_key, &config, Arc::new(Still), &sources).expect("a verifier")
}

/// An Ed25519 public key as an operator writes it.
fn pem(signer: &Signer) -> String {
    const SPKI: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
    let x = signer.jwk()["x"].as_str().unwrap_or_default().to_owned();
    let x = URL_SAFE_NO_PAD.decode(x).expect("base64");
    let der = STANDARD.encode([&SPKI[..], &x].concat());
    format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
}

/// Runs the harness.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let (chosen, named) = (input.byte(), input.byte());
    let rest = input.rest();
    BENCH.with(|bench| {
        let signer = &bench.signers[usize::from(chosen >> 4) % bench.signers.len()];
        match chosen & 7 {
            0 | 1 => judge(
                bench,
                &bench.verifier,
                &String::from_utf8_lossy(rest),
                named,
            ),
            2 => judge(bench, &bench.verifier, &changed(signer, rest), named),
            3 | 4 => {
                let token = signer.token(signer.header().as_bytes(), rest);
                judge(bench, &bench.verifier, &token, named);
            }
            5 => {
                let token = signer.token(rest, good(signer).to_string().as_bytes());
                judge(bench, &bench.verifier, &token, named);
            }
            6 => {
                let mut parts = rest.splitn(2, |byte| *byte == 0xff);
                let mut part = || parts.next().unwrap_or_default();
                let token = signer.token(part(), part());
                judge(bench, &bench.verifier, &token, named);
            }
            _ => key_set(bench, rest),
        }
    });
}

/// Claims that the signer's issuer would make.
fn good(signer: &Signer) -> Value {
    let org = OrgId::from_bytes(ORGS[signer.orgs.first().copied().unwrap_or(0)]);
    let issuer = if signer.issuer.is_empty() {
        ISSUERS[0]
    } else {
        signer.issuer
    };
    json!({"iss": issuer, "aud": "ibex", "exp": NOW + 600, "sub": "ann", "org_id": org})
}

/// A good token of which bytes are changed: pairs of a place and what is put there.
fn changed(signer: &Signer, changes: &[u8]) -> String {
    let good = signer.token(
        signer.header().as_bytes(),
        good(signer).to_string().as_bytes(),
    );
    let mut token = good.into_bytes();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % (token.len() + 1);
        match token.get_mut(place) {
            Some(byte) => *byte = change[2],
            None => token.push(change[2]),
        }
    }
    String::from_utf8_lossy(&token).into_owned()
}

/// Asks the verifier, and holds what it accepts to what the harness can tell by itself.
fn judge(bench: &Bench, verifier: &Verifier, token: &str, named: u8) {
    let Some(credential) = Credential::new(token) else {
        return;
    };
    let Ok(claims) = bench.runtime.block_on(verifier.verify(credential)) else {
        return;
    };
    let (message, signature) = token.rsplit_once('.').expect("three parts");
    let genuine = |signer: &&Signer| !signer.orgs.is_empty() && signer.sign(message) == signature;
    let signer = bench.signers.iter().find(genuine);
    let signer = signer.expect("accepted what nobody signed");
    let (_, payload) = message.split_once('.').expect("three parts");
    let payload = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    let said: Map<String, Value> = serde_json::from_slice(&payload).expect("claims");
    says(&claims, &said, signer);
    bound(bench, verifier, &claims, named);
}

/// Only what the token says, and only what its issuer may say.
fn says(claims: &TokenClaims, said: &Map<String, Value>, signer: &Signer) {
    let text = |name: &str| said.get(name).and_then(Value::as_str);
    assert_eq!(text("iss"), Some(signer.issuer));
    let ours = |one: &Value| one == "ibex" || one == "other";
    let several = said["aud"].as_array();
    let audience = several.map_or_else(|| ours(&said["aud"]), |several| several.iter().any(ours));
    assert!(audience, "meant for somebody else");
    #[expect(clippy::cast_precision_loss, reason = "a time of this century")]
    let now = NOW as f64;
    assert!(said["exp"].as_f64().is_some_and(|exp| exp + LEEWAY > now));
    assert!(
        said.get("nbf")
            .is_none_or(|nbf| nbf.as_f64().is_some_and(|nbf| nbf - LEEWAY <= now))
    );
    let may = signer
        .orgs
        .iter()
        .any(|at| claims.org().as_bytes() == &ORGS[*at]);
    assert!(may, "an organisation that is not the issuer's");
    if said.contains_key("org_id") {
        assert_eq!(text("org_id"), Some(&*claims.org().to_string()));
    }
    let agent = claims.agent().map(|agent| agent.to_string());
    assert_eq!(
        said.get("agent_id").and_then(Value::as_str),
        agent.as_deref()
    );
    let user = claims.user().map(|user| user.as_str());
    let expected = (signer.issuer == ISSUERS[2]).then(|| text("sub")).flatten();
    assert_eq!(user, expected);
}

/// No principal of another tenant than the token's.
fn bound(bench: &Bench, verifier: &Verifier, claims: &TokenClaims, named: u8) {
    let agent = AGENTS
        .get(usize::from(named & 3))
        .copied()
        .map(AgentId::from_bytes);
    let user = (named & 4 != 0).then(|| "bea".parse().expect("a user"));
    let Ok(who) = bench.runtime.block_on(verifier.bind(claims, agent, user)) else {
        return;
    };
    assert_eq!(who.org(), claims.org());
    let home = ORGS
        .iter()
        .zip(AGENTS)
        .find(|(org, _)| *org == who.org().as_bytes());
    assert_eq!(
        home.map(|(_, agent)| AgentId::from_bytes(agent)),
        Some(who.agent())
    );
    assert!(claims.agent().is_none_or(|bound| bound == who.agent()));
    assert!(
        claims
            .user()
            .is_none_or(|bound| Some(bound) == who.scope().user())
    );
}

/// A key set of an issuer: no token of a key that is not in it.
fn key_set(bench: &Bench, set: &[u8]) {
    let signer = &bench.signers[3];
    let verifier = verifier(
        &bench.idle.store,
        &bench.signers,
        Bytes::copy_from_slice(set),
    );
    let token = signer.token(
        signer.header().as_bytes(),
        good(signer).to_string().as_bytes(),
    );
    let credential = Credential::new(&token).expect("a credential");
    if bench.runtime.block_on(verifier.verify(credential)).is_ok() {
        let key = signer.jwk()["x"].to_string();
        let inside = String::from_utf8_lossy(set).contains(key.trim_matches('"'));
        assert!(inside, "accepted a key that is not in the set");
    }
}
