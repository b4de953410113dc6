//! Doubles for the tests of identity: a store in memory, a clock that stands still, dice that can be told apart, issuers with real keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, encode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::config::{AuthConfig, IssuerConfig, KeyConfig};
use crate::ids::{AgentId, OrgId, TokenId};
use crate::seams::{Clock, Entropy, EntropyError};
use crate::store::{
    Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus, StoreError, StoredToken,
};

use super::jwt::{KeySetError, KeySetSource};
use super::pat::{IssuedToken, NewToken, TokenKey, issue};
use super::{Permissions, Verifier};

/// Identities in memory; counts its reads and can be down.
#[derive(Debug, Default)]
pub(crate) struct TestStore {
    orgs: Mutex<HashMap<OrgId, Org>>,
    agents: Mutex<HashMap<AgentId, Agent>>,
    tokens: Mutex<HashMap<TokenId, StoredToken>>,
    pub(crate) down: AtomicBool,
    pub(crate) hanging: AtomicBool,
    reads: AtomicUsize,
}

impl TestStore {
    pub(crate) fn add_org(&self) -> OrgId {
        let org = Org {
            id: OrgId::new(),
            name: "org".to_owned(),
            status: OrgStatus::Active,
            created_at: start(),
        };
        self.orgs.lock().insert(org.id, org.clone());
        org.id
    }

    pub(crate) fn add_agent(&self, org: OrgId, status: AgentStatus) -> AgentId {
        let agent = Agent {
            id: AgentId::new(),
            org,
            name: "agent".to_owned(),
            status,
            capture: CaptureScope::Off,
            created_at: start(),
        };
        self.agents.lock().insert(agent.id, agent.clone());
        agent.id
    }

    pub(crate) fn add_token(&self, new: NewToken) -> IssuedToken {
        let issued = issue(&token_key(), &Dice::default(), new).unwrap();
        self.tokens.lock().insert(issued.row.id, issued.row.clone());
        issued
    }

    /// Reads since the last call.
    pub(crate) fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }

    async fn read<T>(&self, answer: impl FnOnce() -> T) -> Result<T, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.hanging.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.down.load(Ordering::Relaxed) {
            Err(StoreError::Unavailable("down".to_owned()))
        } else {
            Ok(answer())
        }
    }
}

#[async_trait]
impl IdentityStore for TestStore {
    async fn create_org(&self, org: Org) -> Result<(), StoreError> {
        self.orgs.lock().insert(org.id, org);
        Ok(())
    }
    async fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        self.read(|| self.orgs.lock().get(&id).cloned()).await
    }
    async fn orgs(&self) -> Result<Vec<Org>, StoreError> {
        Ok(self.orgs.lock().values().cloned().collect())
    }
    async fn set_org_status(&self, id: OrgId, status: OrgStatus) -> Result<(), StoreError> {
        self.orgs
            .lock()
            .get_mut(&id)
            .ok_or(StoreError::Missing("organisation"))?
            .status = status;
        Ok(())
    }
    async fn create_agent(&self, agent: Agent) -> Result<(), StoreError> {
        self.agents.lock().insert(agent.id, agent);
        Ok(())
    }
    async fn agent(&self, org: OrgId, id: AgentId) -> Result<Option<Agent>, StoreError> {
        self.read(|| {
            self.agents
                .lock()
                .get(&id)
                .filter(|agent| agent.org == org)
                .cloned()
        })
        .await
    }
    async fn agents(&self, org: OrgId) -> Result<Vec<Agent>, StoreError> {
        Ok(self
            .agents
            .lock()
            .values()
            .filter(|agent| agent.org == org)
            .cloned()
            .collect())
    }
    async fn set_agent_capture(
        &self,
        _: OrgId,
        id: AgentId,
        capture: CaptureScope,
    ) -> Result<(), StoreError> {
        let mut agents = self.agents.lock();
        let agent = agents.get_mut(&id).ok_or(StoreError::Missing("agent"))?;
        agent.capture = capture;
        Ok(())
    }
    async fn set_agent_status(
        &self,
        _: OrgId,
        id: AgentId,
        status: AgentStatus,
    ) -> Result<(), StoreError> {
        self.agents
            .lock()
            .get_mut(&id)
            .ok_or(StoreError::Missing("agent"))?
            .status = status;
        Ok(())
    }
    async fn create_token(&self, token: StoredToken) -> Result<(), StoreError> {
        self.tokens.lock().insert(token.id, token);
        Ok(())
    }
    async fn token(&self, id: TokenId) -> Result<Option<StoredToken>, StoreError> {
        self.read(|| self.tokens.lock().get(&id).cloned()).await
    }
    async fn tokens(&self, org: OrgId) -> Result<Vec<StoredToken>, StoreError> {
        Ok(self
            .tokens
            .lock()
            .values()
            .filter(|token| token.org == org)
            .cloned()
            .collect())
    }
    async fn revoke_token(&self, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        self.tokens
            .lock()
            .get_mut(&id)
            .ok_or(StoreError::Missing("token"))?
            .revoked_at
            .get_or_insert(at);
        Ok(())
    }
}

/// Where every test begins.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A clock that moves when it is told to.
#[derive(Debug)]
pub(crate) struct HandClock(Mutex<Timestamp>);

impl HandClock {
    pub(crate) fn advance_s(&self, seconds: i64) {
        let mut now = self.0.lock();
        *now = now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }
}

impl Default for HandClock {
    fn default() -> Self {
        Self(Mutex::new(start()))
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

/// Bytes that differ from one draw to the next.
#[derive(Debug, Default)]
pub(crate) struct Dice(AtomicU8);

impl Entropy for Dice {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        Ok(())
    }
}

/// A random source that fails.
#[derive(Debug)]
pub(crate) struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&self, _: &mut [u8]) -> Result<(), EntropyError> {
        Err(EntropyError)
    }
}

pub(crate) fn token_key() -> TokenKey {
    TokenKey::new(&[42; 32]).unwrap()
}

pub(crate) fn new_token(org: OrgId) -> NewToken {
    NewToken {
        org,
        agent: None,
        user: None,
        name: "t".to_owned(),
        permissions: Permissions::CHAT,
        created_at: start(),
        expires_at: None,
    }
}

/// A verifier with what it stands on.
pub(crate) struct Bench {
    pub(crate) store: Arc<TestStore>,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) verifier: Verifier,
    pub(crate) org: OrgId,
}

impl Bench {
    /// One organisation and no issuer.
    pub(crate) fn new() -> Self {
        Self::with(AuthConfig::default(), |_| Vec::new(), &HashMap::new())
    }

    /// One issuer with these static keys.
    pub(crate) fn with_keys(keys: Vec<KeyConfig>, change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let issuers = |org| {
            let mut issuer = issuer(org);
            issuer.keys = keys;
            change(&mut issuer);
            vec![issuer]
        };
        Self::with(AuthConfig::default(), issuers, &HashMap::new())
    }

    /// One issuer with this key set.
    pub(crate) fn with_key_set(source: &Arc<FakeKeySet>) -> Self {
        let issuers = |org| {
            let mut issuer = issuer(org);
            issuer.jwks_url = Some("https://issuer.example/keys".to_owned());
            vec![issuer]
        };
        Self::with(
            AuthConfig::default(),
            issuers,
            &HashMap::from([(
                ISSUER.to_owned(),
                Arc::clone(source) as Arc<dyn KeySetSource>,
            )]),
        )
    }

    pub(crate) fn with(
        mut config: AuthConfig,
        issuers: impl FnOnce(OrgId) -> Vec<IssuerConfig>,
        sources: &HashMap<String, Arc<dyn KeySetSource>>,
    ) -> Self {
        let store = Arc::new(TestStore::default());
        let clock = Arc::new(HandClock::default());
        let org = store.add_org();
        config.issuers = issuers(org);
        let identities: Arc<dyn IdentityStore> = store.clone();
        let verifier =
            Verifier::new(identities, token_key(), &config, clock.clone(), sources).unwrap();
        Self {
            store,
            clock,
            verifier,
            org,
        }
    }
}

pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "ibex";

/// An issuer for one organisation, without keys.
pub(crate) fn issuer(org: OrgId) -> IssuerConfig {
    toml::from_str(&format!(
        "issuer = \"{ISSUER}\"\naudience = [\"{AUDIENCE}\", \"other\"]\norgs = [\"{org}\"]"
    ))
    .unwrap()
}

/// The claims that [`issuer`] accepts, for ten minutes.
pub(crate) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "exp": start().as_second() + 600, "sub": "robot"})
}

/// [`claims`] signed with RS256 under the `kid` of [`RSA_KID`]; the private key was thrown away.
pub(crate) const RSA_TOKEN: &str = include_str!("testdata/rs256.jwt");
pub(crate) const RSA_KID: &str = "rsa-1";
pub(crate) const RSA_PUBLIC_PEM: &str = include_str!("testdata/rsa.pub.pem");
/// A key of 1,024 bits.
pub(crate) const WEAK_RSA_PUBLIC_PEM: &str = include_str!("testdata/rsa-1024.pub.pem");

/// The public half of [`RSA_TOKEN`]'s key as a member of a set.
pub(crate) fn rsa_jwk(pem: &str) -> Value {
    let mut jwk = Jwk::from_decoding_key(
        &DecodingKey::from_rsa_pem(pem.as_bytes()).unwrap(),
        Some(Algorithm::RS256),
    )
    .unwrap();
    jwk.common.key_id = Some(RSA_KID.to_owned());
    serde_json::to_value(jwk).unwrap()
}

/// The same as an operator configures it.
pub(crate) fn rsa_config(pem: &str) -> KeyConfig {
    let public_key_pem = Some(pem.to_owned());
    KeyConfig {
        kid: Some(RSA_KID.to_owned()),
        algorithm: "RS256".to_owned(),
        secret: None,
        public_key_pem,
        file: None,
    }
}

/// A signing key of an issuer, with a fixed seed for the small ones.
pub(crate) struct Signer {
    kid: Option<&'static str>,
    algorithm: Algorithm,
    key: EncodingKey,
    secret: Option<Vec<u8>>,
}

impl Signer {
    pub(crate) fn ed(kid: Option<&'static str>, seed: u8) -> Self {
        const PKCS8: [u8; 16] =
            *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        let der = [&PKCS8[..], &[seed; 32]].concat();
        Self {
            kid,
            algorithm: Algorithm::EdDSA,
            key: EncodingKey::from_ed_der(&der),
            secret: None,
        }
    }

    pub(crate) fn ec(kid: Option<&'static str>, seed: u8) -> Self {
        const PKCS8: &[u8] = b"\x30\x41\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20";
        let der = [PKCS8, &[seed; 32]].concat();
        Self {
            kid,
            algorithm: Algorithm::ES256,
            key: EncodingKey::from_ec_der(&der),
            secret: None,
        }
    }

    pub(crate) fn hs(kid: Option<&'static str>, secret: &[u8]) -> Self {
        Self {
            kid,
            algorithm: Algorithm::HS256,
            key: EncodingKey::from_secret(secret).unwrap(),
            secret: Some(secret.to_vec()),
        }
    }

    pub(crate) fn header(&self) -> Header {
        let mut header = Header::new(self.algorithm);
        header.kid = self.kid.map(str::to_owned);
        header
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_with(&self.header(), claims)
    }

    pub(crate) fn sign_with(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.key).unwrap()
    }

    /// The key as a member of a set.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = self.kid.map(str::to_owned);
        serde_json::to_value(jwk).unwrap()
    }

    /// The key as an operator configures it.
    pub(crate) fn config(&self) -> KeyConfig {
        let secret = self.secret.as_ref().map(|bytes| STANDARD.encode(bytes));
        let public_key_pem = secret.is_none().then(|| self.public_pem());
        let algorithm = format!("{:?}", self.algorithm);
        KeyConfig {
            kid: self.kid.map(str::to_owned),
            algorithm,
            secret,
            public_key_pem,
            file: None,
        }
    }

    fn public_pem(&self) -> String {
        const ED: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
        const EC: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04";
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let parameters = Jwk::from_encoding_key(&self.key, self.algorithm)
            .unwrap()
            .algorithm;
        let der = if let AlgorithmParameters::OctetKeyPair(key) = &parameters {
            [ED, &bytes(&key.x)].concat()
        } else if let AlgorithmParameters::EllipticCurve(key) = &parameters {
            [EC, &bytes(&key.x), &bytes(&key.y)].concat()
        } else {
            unreachable!("no other kind of key signs here")
        };
        format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            STANDARD.encode(der)
        )
    }
}

/// A key set whose answers are set by hand and whose fetches are counted.
#[derive(Debug)]
pub(crate) struct FakeKeySet {
    body: Mutex<Option<Bytes>>,
    pub(crate) hanging: AtomicBool,
    fetches: AtomicUsize,
}

impl FakeKeySet {
    pub(crate) fn serving(keys: &[Value]) -> Arc<Self> {
        let fake = Self {
            body: Mutex::default(),
            hanging: AtomicBool::default(),
            fetches: AtomicUsize::default(),
        };
        fake.serve(keys);
        Arc::new(fake)
    }

    pub(crate) fn serve(&self, keys: &[Value]) {
        self.serve_raw(json!({"keys": keys}).to_string());
    }

    pub(crate) fn serve_raw(&self, body: String) {
        *self.body.lock() = Some(body.into());
    }

    pub(crate) fn fail(&self) {
        *self.body.lock() = None;
    }

    /// Fetches begun since the last call.
    pub(crate) fn fetches(&self) -> usize {
        self.fetches.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl KeySetSource for FakeKeySet {
    async fn fetch(&self) -> Result<Bytes, KeySetError> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        // A turn of the scheduler, so that others arrive while the fetch is under way.
        tokio::task::yield_now().await;
        if self.hanging.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.body
            .lock()
            .clone()
            .ok_or_else(|| KeySetError::Fetch("connection refused".to_owned()))
    }
}
