//! Loading: which file, then the file, then the environment over it, then every fault of all of them in one answer.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use super::check::{self, Checked};
use super::env::{self, CONFIG_FILE, Variables};
use super::fault::{ConfigFaults, Fault, Origin};
use super::schema::Schema;
use super::tree::{self, Kind, Node};
use super::{Config, OPENAI_BASE_URL, resolve, validate};

/// The file that is read when neither the command line nor `IBEX_CONFIG` names one.
const DEFAULT_FILE: &str = "ibex.toml";

/// A configuration without faults.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration, with secret files read and dependent defaults filled in.
    pub config: Config,
    /// The file it came from, if there was one.
    pub file: Option<PathBuf>,
    /// What works but is probably not meant.
    pub warnings: Vec<String>,
}

/// Loads the configuration from `file` (else `IBEX_CONFIG`, else `./ibex.toml` if there is one), then from the variables in `env`.
///
/// # Errors
/// Every fault at once: unreadable files, syntax, unknown keys and variables, wrong types, and what [`super::validate`] finds.
pub fn load(file: Option<&Path>, env: &Variables) -> Result<Loaded, ConfigFaults> {
    let schema = Schema::new();
    let mut faults = Vec::new();
    let mut written = BTreeMap::new();
    let mut used = None;
    match find_file(file, env) {
        Ok(Some((file, text))) => {
            let (nodes, syntax) = tree::read_file(&text, &file);
            written = nodes;
            faults.extend(syntax);
            used = Some(file);
        }
        Ok(None) => {}
        Err(fault) => faults.push(fault),
    }

    let from_env = env::read(&schema, env);
    faults.extend(from_env.faults);
    for setting in from_env.settings {
        tree::insert(&mut written, &setting.path, &setting.origin, setting.value);
    }
    add_openai_url(&mut written);

    let checked = check::check(&schema, &written);
    let (config, more) = build(&checked);
    faults.extend(checked.faults);
    for mut fault in more {
        // What stands in for a wrong value may look wrong itself; the value's own fault says more.
        if !faults.iter().any(|known| known.key == fault.key) {
            fault.origin = origin_of(&fault.key, &checked.origins);
            faults.push(fault);
        }
    }
    ConfigFaults::check(faults)?;
    let mut warnings = from_env.warnings;
    warnings.extend(validate::warnings(&config));
    Ok(Loaded {
        config,
        file: used,
        warnings,
    })
}

/// The typed configuration and everything that is wrong with its meaning.
fn build(checked: &Checked) -> (Config, Vec<Fault>) {
    let mut config = match Config::deserialize(Value::Table(checked.settings.clone())) {
        Ok(config) => config,
        Err(error) => {
            return (
                Config::default(),
                vec![Fault::new("configuration", error.message())],
            );
        }
    };
    let mut faults = resolve::resolve(&mut config, &|key| checked.origins.contains_key(key));
    faults.extend(validate::validate(&config));
    (config, faults)
}

fn find_file(flag: Option<&Path>, env: &Variables) -> Result<Option<(PathBuf, String)>, Fault> {
    let (file, origin) = match (flag, env::set(env, CONFIG_FILE)) {
        (Some(file), _) => (file.to_owned(), Origin::Flag("--config")),
        (None, Some(file)) => (
            PathBuf::from(file),
            Origin::Variable(CONFIG_FILE.to_owned()),
        ),
        (None, None) => match std::fs::read_to_string(DEFAULT_FILE) {
            Ok(text) => return Ok(Some((PathBuf::from(DEFAULT_FILE), text))),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Fault::new(
                    DEFAULT_FILE,
                    format!("the file cannot be read: {error}"),
                ));
            }
        },
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(Some((file, text))),
        Err(error) => Err(Fault::new(
            file.display().to_string(),
            format!("the file cannot be read: {error}"),
        )
        .at(origin)),
    }
}

/// A key for `openai` without a URL means OpenAI's own.
fn add_openai_url(written: &mut BTreeMap<String, Node>) {
    let Some(Kind::Table(providers)) = written.get_mut("providers").map(|node| &mut node.kind)
    else {
        return;
    };
    let Some(Kind::Table(openai)) = providers.get_mut("openai").map(|node| &mut node.kind) else {
        return;
    };
    if let Some(origin) = openai.get("api_key").map(|key| key.origin.clone()) {
        let url = Kind::Leaf(Value::String(OPENAI_BASE_URL.to_owned()));
        openai
            .entry("base_url".to_owned())
            .or_insert(Node { origin, kind: url });
    }
}

/// Where a setting was written, or else the section or list that it would stand in.
fn origin_of(key: &str, origins: &BTreeMap<String, Origin>) -> Option<Origin> {
    let mut key = key;
    loop {
        if let Some(origin) = origins.get(key) {
            return Some(origin.clone());
        }
        key = key.get(..key.rfind(['.', '['])?)?;
    }
}
