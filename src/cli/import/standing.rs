//! Where an import stands, kept in a small file beside the store.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::auth::Scope;
use crate::cli::CliError;

/// Bytes at the start of a file that tell it from others.
const HEAD: u64 = 64 << 10;

/// What became of the lines so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) imported: u64,
    pub(super) duplicates: u64,
    pub(super) failed: u64,
}

impl Tally {
    /// Lines that were not blank.
    pub(super) fn all(&self) -> u64 {
        self.imported + self.duplicates + self.failed
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} imported, {} duplicates, {} failed",
            self.imported, self.duplicates, self.failed
        )
    }
}

/// Tells whether a file is still the one that was being imported: its length, its time and its beginning.
///
/// A change that leaves any of them otherwise starts the import over, which loses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    /// Length in bytes.
    pub(super) bytes: u64,
    modified_ns: u128,
    head: String,
}

impl Fingerprint {
    /// The fingerprint of a regular file.
    ///
    /// # Errors
    /// When it cannot be read, or is a folder or a pipe.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head)?;
        Ok(Self {
            bytes: metadata.len(),
            modified_ns: modified.map_or(0, |time| time.as_nanos()),
            head: short_hash(&[&head]),
        })
    }
}

/// Where an import stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    pub(super) fingerprint: Fingerprint,
    /// Bytes that are done; the end of a line.
    pub(super) offset: u64,
    /// The line that ends there.
    pub(super) line: u64,
    pub(super) tally: Tally,
}

impl Standing {
    /// The start of a file.
    pub(super) fn new(fingerprint: Fingerprint) -> Self {
        Self {
            fingerprint,
            offset: 0,
            line: 0,
            tally: Tally::default(),
        }
    }
}

/// The file that keeps the standing of one import: one source into one scope.
#[derive(Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    /// The place of importing `file` into `scope`, in the folder of the store.
    pub(super) fn of(store: &Path, file: &Path, scope: &Scope) -> Self {
        // A path that cannot be resolved could not be opened either; its text serves as well.
        let source = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let user = scope.user().map_or("", |user| user.as_str());
        let name = short_hash(&[
            source.as_os_str().as_encoded_bytes(),
            scope.org().as_bytes(),
            scope.agent().as_bytes(),
            user.as_bytes(),
        ]);
        Self(store.with_file_name(format!("import-{name}.json")))
    }

    /// The standing of an earlier run over the same file. One that cannot be read counts as none.
    pub(super) fn load(&self, fingerprint: &Fingerprint) -> Option<Standing> {
        let bytes = fs::read(&self.0).ok()?;
        let standing: Standing = serde_json::from_slice(&bytes).ok()?;
        (standing.fingerprint == *fingerprint).then_some(standing)
    }

    /// Keeps `standing`; a reader sees the old one or the new one, never a part.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(super) fn save(&self, standing: &Standing) -> Result<(), CliError> {
        let draft = self.0.with_extension("tmp");
        serde_json::to_vec(standing)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&draft, bytes))
            .and_then(|()| fs::rename(&draft, &self.0))
            .map_err(|e| self.unusable(&e))
    }

    /// Forgets it.
    ///
    /// # Errors
    /// When there is one that cannot be removed.
    pub(super) fn clear(&self) -> Result<(), CliError> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.unusable(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn unusable(&self, error: &io::Error) -> CliError {
        CliError::Failed(format!("{}: {error}", self.0.display()))
    }
}

/// The first half of a SHA-256 over parts that are kept apart by their lengths.
fn short_hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Fingerprint, Place, Standing};
    use crate::auth::Scope;
    use crate::ids::{AgentId, OrgId};

    #[test]
    fn a_standing_holds_for_the_same_file_and_scope_only() {
        let folder = tempfile::tempdir().unwrap();
        let (store, file) = (folder.path().join("ibex.db"), folder.path().join("in"));
        std::fs::write(&file, "one\ntwo\n").unwrap();
        let scope = Scope::for_test(OrgId::new(), AgentId::new(), None);
        let place = Place::of(&store, &file, &scope);
        let mut standing = Standing::new(Fingerprint::of(&file).unwrap());
        standing.offset = 4;
        place.save(&standing).unwrap();
        assert_eq!(place.load(&standing.fingerprint), Some(standing.clone()));

        let ann = Scope::for_test(scope.org(), scope.agent(), Some("ann".parse().unwrap()));
        assert_eq!(
            Place::of(&store, &file, &ann).load(&standing.fingerprint),
            None
        );
        std::fs::write(&file, "one\ntwo\nthree\n").unwrap();
        assert_eq!(place.load(&Fingerprint::of(&file).unwrap()), None);
        place.clear().unwrap();
        place.clear().unwrap();
        assert_eq!(place.load(&standing.fingerprint), None);
    }

    #[test]
    fn a_folder_is_no_file_to_import() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Fingerprint::of(folder.path()).is_err());
    }
}
