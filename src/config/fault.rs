//! What is wrong with a configuration: the key, where it was written, the reason, and the nearest valid name.
//!
//! A fault never repeats a value: it might be a secret, or a secret pasted into the wrong key.

use std::fmt;
use std::path::PathBuf;

/// Where a setting was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line of the file, from 1.
    Line(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// The command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{}:{line}", file.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The dotted path of the setting, such as `models[1].pattern`; for a variable or file that names no setting, its own name.
    pub key: String,
    /// Where it was written; absent for defaults.
    pub origin: Option<Origin>,
    /// What is wrong, and what would be right.
    pub reason: String,
    /// The valid name that looks most like it.
    pub nearest: Option<String>,
}

impl Fault {
    /// A fault without origin and near match.
    #[must_use]
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            origin: None,
            reason: reason.into(),
            nearest: None,
        }
    }

    /// Says where it was written.
    #[must_use]
    pub fn at(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Says what was probably meant.
    #[must_use]
    pub fn nearest(mut self, name: Option<String>) -> Self {
        self.nearest = name;
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(origin) = &self.origin
            && origin.to_string() != self.key
        {
            write!(f, " ({origin})")?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(name) = &self.nearest {
            write!(f, "; did you mean {name}?")?;
        }
        Ok(())
    }
}

/// Everything that is wrong, in one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults(Vec<Fault>);

impl ConfigFaults {
    /// `Err` with the faults, sorted by where they were written, or `Ok` when there are none.
    ///
    /// # Errors
    /// When `faults` is not empty.
    pub fn check(mut faults: Vec<Fault>) -> Result<(), Self> {
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort_by(|a, b| (&a.origin, &a.key).cmp(&(&b.origin, &b.key)));
        faults.dedup();
        Err(Self(faults))
    }

    /// The faults.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.0
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "" } else { "s" };
        write!(f, "the configuration has {} fault{plural}:", self.0.len())?;
        for fault in &self.0 {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}
