//! A configuration file, and variables over it, through loading, checking and validation.
//!
//! The input is the file's text and then `NAME=value` variables, with the byte 0xff between them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::path::PathBuf;

use ibex::config::{Config, Variables, load, validate};

use super::input::texts;
use super::service::{Idle, folder};

thread_local! {
    static FILE: PathBuf = folder().join("ibex.toml");
    /// What a reload is tried on. Never dropped: what is in it may need what is gone at the end of a thread.
    static RUNNING: ManuallyDrop<Idle> = ManuallyDrop::new(Idle::new());
    /// Configurations that have been written out and read again, which takes long.
    static KNOWN: RefCell<HashSet<u64>> = RefCell::new(HashSet::new());
}

/// Runs the harness.
pub fn run(input: &[u8]) {
    let mut texts = texts(input).into_iter();
    let text = texts.next().unwrap_or_default();
    let variables: Variables = texts
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            // It names a file outside of the test.
            (name != "IBEX_CONFIG").then(|| (name.to_owned(), value.to_owned()))
        })
        .collect();
    match accepted(&text, &variables) {
        Ok(config) => again(&config),
        Err(faults) => assert!(faults.contains("fault"), "{faults}"),
    }
}

/// The configuration, or the message with every fault.
fn accepted(text: &str, variables: &Variables) -> Result<Config, String> {
    FILE.with(|file| {
        std::fs::write(file, text).expect("a file");
        load(Some(file), variables)
            .map(|loaded| loaded.config)
            .map_err(|faults| faults.to_string())
    })
}

/// An accepted configuration has no fault, can be taken over by a running process, and is accepted again when it is written out.
fn again(config: &Config) {
    assert_eq!(validate(config), []);
    let taken = RUNNING.with(|running| running.app.reload(config));
    assert!(taken.is_ok(), "{taken:?}");
    let written = toml::to_string(config).expect("a configuration as text");
    let mut hasher = DefaultHasher::new();
    written.hash(&mut hasher);
    if !KNOWN.with_borrow_mut(|known| known.insert(hasher.finish())) {
        return;
    }
    match accepted(&written, &Variables::new()) {
        Ok(read) => assert_eq!(toml::to_string(&read).ok(), Some(written)),
        Err(faults) => panic!("{faults}\n{written}"),
    }
}
