//! Server keys: from the configuration, else from a file beside the embedded store that the first start creates.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use hmac::digest::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::files;
use crate::config::KeysConfig;
use crate::seams::Entropy;

/// The name of the token digest key, in the file and in `[keys]`.
const TOKEN_DIGEST: &str = "token_digest";
/// The name of the session key in `[keys]`.
const SESSION: &str = "session";
/// Standard base64; the padding may be missing, as many tools leave it away.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// 32 secret bytes. Hidden from `Debug`, overwritten when dropped.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// The bytes, for a keyed hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key for another purpose: HMAC-SHA-256 of the purpose's name under this one. It gives nothing away about this key.
    fn derived(&self, purpose: &str) -> Self {
        let mut block = Key::<Hmac<Sha256>>::default();
        block
            .iter_mut()
            .zip(self.0)
            .for_each(|(slot, byte)| *slot = byte);
        let mut mac = Hmac::<Sha256>::new(&block);
        mac.update(b"ibex key: ");
        mac.update(purpose.as_bytes());
        let mut key = [0; 32];
        key.iter_mut()
            .zip(mac.finalize().into_bytes())
            .for_each(|(slot, byte)| *slot = byte);
        Self(key)
    }

    /// Reads base64 of exactly 32 bytes.
    fn decode(text: &str) -> Option<Self> {
        let bytes = BASE64.decode(text.trim()).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    fn encode(&self) -> String {
        BASE64.encode(self.0)
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without a reader the compiler may leave the overwriting out.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(<hidden>)")
    }
}

/// Why the server has no keys. The texts never hold a key or a part of one.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A configured key is not base64 of 32 bytes.
    #[error("keys.{0} must be base64 of exactly 32 bytes")]
    Configured(&'static str),
    /// The key file is not what this program writes.
    #[error("the key file {path} is damaged: {reason}; restore it, or set keys.{TOKEN_DIGEST}: a new key would void every token", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The key file cannot be read or created.
    #[error("the key file {path} cannot be read or created: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No randomness for a new key.
    #[error(transparent)]
    Entropy(#[from] crate::seams::EntropyError),
}

/// The keys of this server; every replica over one store has the same.
#[derive(Debug, Clone)]
pub struct ServerKeys {
    /// Keys the digests of stored tokens.
    pub token_digest: SecretKey,
    /// Keys what sessions are known by.
    pub session: SecretKey,
}

impl ServerKeys {
    /// Whether the key file of the store at `store_path` is there.
    #[must_use]
    pub fn exist(store_path: &Path) -> bool {
        KeyFile::beside(store_path).path.exists()
    }

    /// Sixteen digits that two servers share exactly when they have the same keys; they give nothing away about them.
    #[must_use]
    pub fn check(&self) -> String {
        let (token_digest, session) = (
            self.token_digest.derived("check"),
            self.session.derived("check"),
        );
        let both = token_digest.as_bytes().iter().zip(session.as_bytes());
        both.take(8)
            .map(|(a, b)| format!("{:02x}", a ^ b))
            .collect()
    }

    /// Takes configured keys; for the others reads `<store file name>.keys` beside the store, which is created when it does not exist.
    /// Processes that start together agree on one file.
    ///
    /// # Errors
    /// When a configured key or the file is malformed, or the file cannot be read or created.
    pub fn load_or_create(
        store_path: &Path,
        configured: &KeysConfig,
        entropy: &dyn Entropy,
    ) -> Result<Self, KeysError> {
        let token_digest = match &configured.token_digest {
            Some(text) => SecretKey::decode(text).ok_or(KeysError::Configured(TOKEN_DIGEST))?,
            None => KeyFile::beside(store_path).load_or_create(entropy)?,
        };
        let session = match &configured.session {
            Some(text) => SecretKey::decode(text).ok_or(KeysError::Configured(SESSION))?,
            None => token_digest.derived(SESSION),
        };
        Ok(Self {
            token_digest,
            session,
        })
    }
}

/// A JSON object of named keys. Names this version does not know are left alone.
struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    fn beside(store_path: &Path) -> Self {
        let mut name = store_path.file_name().unwrap_or_default().to_owned();
        name.push(".keys");
        Self {
            path: store_path.with_file_name(name),
        }
    }

    fn load_or_create(&self, entropy: &dyn Entropy) -> Result<SecretKey, KeysError> {
        if let Some(key) = self.load()? {
            return Ok(key);
        }
        self.create(entropy)?;
        self.load()?
            .ok_or_else(|| self.failed(io::ErrorKind::NotFound.into()))
    }

    fn load(&self) -> Result<Option<SecretKey>, KeysError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(self.damaged("not text"));
            }
            Err(error) => return Err(self.failed(error)),
        };
        let keys: BTreeMap<String, String> =
            serde_json::from_str(&text).map_err(|_| self.damaged("not a JSON object of texts"))?;
        let key = keys
            .get(TOKEN_DIGEST)
            .ok_or_else(|| self.damaged("token_digest is missing"))?;
        SecretKey::decode(key)
            .map(Some)
            .ok_or_else(|| self.damaged("token_digest is not base64 of 32 bytes"))
    }

    /// Writes a whole file under another name and links it to its place. A link, unlike a rename, never replaces: whoever comes second
    /// finds the name taken and uses the first one's keys, and nobody ever sees half a file.
    fn create(&self, entropy: &dyn Entropy) -> Result<(), KeysError> {
        let (mut key, mut suffix) = (SecretKey([0; 32]), [0; 8]);
        entropy.fill(&mut key.0)?;
        entropy.fill(&mut suffix)?;
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{:016x}.tmp", u64::from_le_bytes(suffix)));
        let draft = PathBuf::from(name);
        files::create_folder_of(&self.path).map_err(|e| self.failed(e))?;
        let linked = write_draft(&draft, &key).and_then(|()| fs::hard_link(&draft, &self.path));
        let removed = fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(self.failed(error));
            }
            Ok(()) | Err(_) => {}
        }
        removed
            .and_then(|()| files::sync_folder_of(&self.path))
            .map_err(|e| self.failed(e))
    }

    fn damaged(&self, reason: &'static str) -> KeysError {
        KeysError::Damaged {
            path: self.path.clone(),
            reason,
        }
    }

    fn failed(&self, source: io::Error) -> KeysError {
        KeysError::File {
            path: self.path.clone(),
            source,
        }
    }
}

fn write_draft(path: &Path, key: &SecretKey) -> io::Result<()> {
    let keys = BTreeMap::from([(TOKEN_DIGEST, key.encode())]);
    let mut file = files::create_private(path)?;
    serde_json::to_writer_pretty(&mut file, &keys)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{KeysError, ServerKeys};
    use crate::config::KeysConfig;
    use crate::seams::SystemEntropy;

    fn load(store: &std::path::Path, configured: Option<&str>) -> Result<ServerKeys, KeysError> {
        ServerKeys::load_or_create(
            store,
            &KeysConfig {
                token_digest: configured.map(str::to_owned),
                session: None,
            },
            &SystemEntropy,
        )
    }

    #[test]
    fn the_first_start_creates_a_private_file_and_later_starts_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("data/ibex.db");
        let first = load(&store, None).unwrap();
        let file = folder.path().join("data/ibex.db.keys");
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            std::fs::metadata(folder.path().join("data"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
        assert_eq!(
            std::fs::read_dir(folder.path().join("data"))
                .unwrap()
                .count(),
            1,
            "no draft is left behind"
        );
        assert_ne!(first.token_digest.as_bytes(), &[0; 32]);
        assert_eq!(
            load(&store, None).unwrap().token_digest.as_bytes(),
            first.token_digest.as_bytes()
        );
    }

    #[test]
    fn starts_at_the_same_time_agree_on_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("ibex.db");
        let barrier = std::sync::Barrier::new(16);
        let keys = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                *load(&store, None).unwrap().token_digest.as_bytes()
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(start)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<std::collections::HashSet<_>>()
        });
        assert_eq!(keys.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_configured_key_wins_and_creates_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let keys = load(
            &folder.path().join("ibex.db"),
            Some("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"),
        )
        .unwrap();
        assert_eq!(keys.token_digest.as_bytes(), &[1; 32]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn malformed_keys_are_refused_without_showing_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("ibex.db");
        let short = load(&store, Some("c2hvcnQ=")).unwrap_err().to_string();
        assert_eq!(
            short,
            "keys.token_digest must be base64 of exactly 32 bytes"
        );
        for text in [
            "{",
            "[]",
            "{}",
            r#"{"token_digest": "c2hvcnQ="}"#,
            r#"{"token_digest": 7}"#,
            "",
        ] {
            std::fs::write(folder.path().join("ibex.db.keys"), text).unwrap();
            let error = load(&store, None).unwrap_err();
            assert!(
                matches!(error, KeysError::Damaged { .. }),
                "{text}: {error}"
            );
            assert!(!error.to_string().contains("c2hvcnQ"), "{error}");
            assert_eq!(
                std::fs::read_to_string(folder.path().join("ibex.db.keys")).unwrap(),
                text,
                "never overwritten"
            );
        }
    }

    #[test]
    fn debug_hides_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let keys = load(
            &folder.path().join("ibex.db"),
            Some("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="),
        )
        .unwrap();
        assert_eq!(
            format!("{keys:?}"),
            "ServerKeys { token_digest: SecretKey(<hidden>), session: SecretKey(<hidden>) }"
        );
    }
}
