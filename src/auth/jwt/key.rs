//! One verification key. Its algorithm is fixed when it is read, never by a token.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};

use crate::config::KeyConfig;

/// The least secret of HS256: as long as the hash (RFC 7518, section 3.2).
const MIN_SECRET_BYTES: usize = 32;
/// The least RSA modulus, 2,048 bits (RFC 7518, section 3.3).
const MIN_MODULUS_BYTES: usize = 256;
/// The greatest RSA modulus, 8,192 bits: a check costs time in its square.
const MAX_MODULUS_BYTES: usize = 1_024;
/// An Ed25519 public key.
const ED25519_BYTES: usize = 32;

/// A key with its name and its one algorithm.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) verifying: DecodingKey,
}

impl Key {
    /// Whether this key may check a token with this `kid` and `alg`. A key without a name serves only tokens without one.
    pub(super) fn serves(&self, kid: Option<&str>, algorithm: Algorithm) -> bool {
        self.kid.as_deref() == kid && self.algorithm == algorithm
    }

    /// Reads a configured key.
    ///
    /// # Errors
    /// Says what is wrong, without the key.
    pub(super) fn from_config(config: &KeyConfig) -> Result<Self, String> {
        let name = config.algorithm.as_str();
        let algorithm = algorithm_named(name)
            .ok_or_else(|| format!("algorithm \"{name}\" is none of HS256, RS256, ES256, EdDSA"))?;
        let material = material(config, algorithm)?;
        let verifying = match name {
            "HS256" => DecodingKey::from_secret(&secret(&material)?),
            "RS256" => DecodingKey::from_rsa_pem(material.as_bytes()),
            "ES256" => DecodingKey::from_ec_pem(material.as_bytes()),
            _ => DecodingKey::from_ed_pem(material.as_bytes()),
        };
        let verifying = verifying.map_err(|_| format!("not a PEM public key for {name}"))?;
        if !sound(algorithm, &verifying) {
            return Err(format!("the key is too weak or does not fit {name}"));
        }
        Ok(Self {
            kid: config.kid.clone(),
            algorithm,
            verifying,
        })
    }

    /// Reads a key of a fetched set, if it is a signature key of an allowed algorithm. A symmetric key never is.
    pub(super) fn from_jwk(jwk: &Jwk, allowed: &[Algorithm]) -> Option<Self> {
        let inferred = inferred(&jwk.algorithm)?;
        let common = &jwk.common;
        let named_otherwise = common
            .key_algorithm
            .is_some_and(|named| named != KeyAlgorithm::from(inferred));
        let not_for_signatures = common
            .public_key_use
            .as_ref()
            .is_some_and(|purpose| *purpose != PublicKeyUse::Signature)
            || common
                .key_operations
                .as_ref()
                .is_some_and(|operations| !operations.contains(&KeyOperations::Verify));
        if named_otherwise || not_for_signatures || !allowed.contains(&inferred) {
            return None;
        }
        let verifying = DecodingKey::from_jwk(jwk).ok()?;
        sound(inferred, &verifying).then(|| Self {
            kid: common.key_id.clone(),
            algorithm: inferred,
            verifying,
        })
    }
}

/// One of the algorithms that `ibex` accepts at all.
pub(super) fn algorithm_named(name: &str) -> Option<Algorithm> {
    match name {
        "HS256" => Some(Algorithm::HS256),
        "RS256" => Some(Algorithm::RS256),
        "ES256" => Some(Algorithm::ES256),
        "EdDSA" => Some(Algorithm::EdDSA),
        _ => None,
    }
}

/// The one algorithm that a key of this shape is for.
fn inferred(parameters: &AlgorithmParameters) -> Option<Algorithm> {
    if let AlgorithmParameters::RSA(_) = parameters {
        return Some(Algorithm::RS256);
    }
    if let AlgorithmParameters::EllipticCurve(key) = parameters {
        return (key.curve == EllipticCurve::P256).then_some(Algorithm::ES256);
    }
    if let AlgorithmParameters::OctetKeyPair(key) = parameters {
        return (key.curve == EllipticCurve::Ed25519).then_some(Algorithm::EdDSA);
    }
    None
}

fn secret(text: &str) -> Result<Vec<u8>, String> {
    let secret = STANDARD
        .decode(text.trim())
        .map_err(|_| "the secret is not base64".to_owned())?;
    if secret.len() < MIN_SECRET_BYTES {
        return Err(format!(
            "the secret has {} bytes; at least {MIN_SECRET_BYTES} are needed",
            secret.len()
        ));
    }
    Ok(secret)
}

fn material(config: &KeyConfig, algorithm: Algorithm) -> Result<String, String> {
    let symmetric = algorithm == Algorithm::HS256;
    let (inline, other, field) = if symmetric {
        (&config.secret, &config.public_key_pem, "secret")
    } else {
        (&config.public_key_pem, &config.secret, "public_key_pem")
    };
    // A public key in the place of a secret is the classic confusion: whoever can read it could sign.
    if other.is_some() {
        return Err(format!("{} takes {field} or file", config.algorithm));
    }
    let text = match (inline, &config.file) {
        (Some(text), None) => text.clone(),
        (None, Some(path)) => std::fs::read_to_string(path)
            .map_err(|error| format!("the key file cannot be read: {}", error.kind()))?,
        _ => return Err(format!("exactly one of {field} and file must be set")),
    };
    if text.trim().is_empty() {
        return Err("the key is empty".to_owned());
    }
    Ok(text)
}

/// Whether the key has the size its algorithm asks for and can be used at all, so that no token can be the first to find out.
fn sound(algorithm: Algorithm, key: &DecodingKey) -> bool {
    let sized = if algorithm == Algorithm::RS256 {
        modulus_bytes(key).is_some_and(|len| (MIN_MODULUS_BYTES..=MAX_MODULUS_BYTES).contains(&len))
    } else if algorithm == Algorithm::EdDSA {
        // The library cuts a longer key and panics on a shorter one.
        key.try_get_as_bytes()
            .is_ok_and(|bytes| bytes.len() == ED25519_BYTES)
    } else {
        true
    };
    sized && crypto::verify("", b"", key, algorithm).is_ok()
}

fn modulus_bytes(key: &DecodingKey) -> Option<usize> {
    let AlgorithmParameters::RSA(rsa) = Jwk::from_decoding_key(key, None).ok()?.algorithm else {
        return None;
    };
    let modulus = URL_SAFE_NO_PAD.decode(rsa.n).ok()?;
    Some(modulus.iter().skip_while(|byte| **byte == 0).count())
}
