//! The kept corpus of every fuzz target, replayed with the stable compiler: the harnesses stay compiled, and what was found once stays
//! found. `tests/fuzz/README.md` says what each of them holds.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

#[expect(
    unreachable_pub,
    reason = "the fuzz targets call them from another crate"
)]
#[path = "../fuzz/src/lib.rs"]
mod harness;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz")
        .join(name)
}

/// The names in a folder, without their extensions.
fn names(folder: &Path) -> BTreeSet<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        stem.expect("a name").to_owned()
    };
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(name).collect()
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name), harness::$name::run);
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let replayed = BTreeSet::from([$(stringify!($name).to_owned()),*]);
            assert_eq!(names(&folder("fuzz_targets")), replayed);
            assert_eq!(names(&folder("corpus")), replayed);
            assert_eq!(names(&folder("dictionaries")), replayed);
        }
    };
}

targets! { batch_import jwt memory_markup request_body sse_tap toml }

/// Runs a harness on every file of its corpus, and names the one that it fails on.
fn replay(target: &str, run: fn(&[u8])) {
    let corpus = folder("corpus").join(target);
    let files = std::fs::read_dir(&corpus).expect("a corpus");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no corpus");
    for file in files {
        let input = std::fs::read(&file).expect("an input");
        // What is wrong is in the output already.
        let held = catch_unwind(|| run(&input)).is_ok();
        assert!(held, "the harness fails on {}", file.display());
    }
}
