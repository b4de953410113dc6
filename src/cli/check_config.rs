//! `ibex check-config`: the verdict that the start would give, without starting.

use std::path::Path;

use serde::Serialize;

use crate::config::{self, ConfigFaults, Fault, Loaded, Variables};

use super::{CliError, Out};

#[derive(Debug, Serialize)]
struct Verdict<'a> {
    ok: bool,
    file: Option<&'a Path>,
    faults: Vec<FaultRecord<'a>>,
    warnings: &'a [String],
}

#[derive(Debug, Serialize)]
struct FaultRecord<'a> {
    key: &'a str,
    #[serde(rename = "where")]
    origin: Option<String>,
    reason: &'a str,
    nearest: Option<&'a str>,
}

impl<'a> From<&'a Fault> for FaultRecord<'a> {
    fn from(fault: &'a Fault) -> Self {
        Self {
            key: &fault.key,
            origin: fault.origin.as_ref().map(ToString::to_string),
            reason: &fault.reason,
            nearest: fault.nearest.as_deref(),
        }
    }
}

/// Prints every fault and warning of the configuration.
///
/// # Errors
/// When there are faults, or the output cannot be written.
pub fn run(file: Option<&Path>, env: &Variables, out: &mut Out<'_>) -> Result<(), CliError> {
    match config::load(file, env) {
        Ok(loaded) => accepted(&loaded, out),
        Err(faults) => refused(faults, file, out),
    }
}

fn accepted(loaded: &Loaded, out: &mut Out<'_>) -> Result<(), CliError> {
    if out.is_json() {
        let verdict = Verdict {
            ok: true,
            file: loaded.file.as_deref(),
            faults: Vec::new(),
            warnings: &loaded.warnings,
        };
        return Ok(out.value(&verdict)?);
    }
    for warning in &loaded.warnings {
        out.line(format_args!("warning: {warning}"))?;
    }
    match &loaded.file {
        Some(file) => out.line(format_args!(
            "the configuration is fine ({} and the environment)",
            file.display()
        ))?,
        None => {
            out.line("the configuration is fine (defaults and the environment; there is no file)")?
        }
    }
    Ok(())
}

fn refused(faults: ConfigFaults, file: Option<&Path>, out: &mut Out<'_>) -> Result<(), CliError> {
    if !out.is_json() {
        return Err(faults.into());
    }
    out.value(&Verdict {
        ok: false,
        file,
        faults: faults.faults().iter().map(FaultRecord::from).collect(),
        warnings: &[],
    })?;
    Err(CliError::Reported)
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::cli::{CliError, Out};
    use crate::config::Variables;

    fn check(json: bool, env: &[(&str, &str)]) -> (Result<(), CliError>, String) {
        let env: Variables = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut bytes = Vec::new();
        let result = run(None, &env, &mut Out::new(json, &mut bytes));
        (result, String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_good_configuration_passes() {
        let (result, text) = check(false, &[]);
        assert!(result.is_ok());
        assert!(
            text.contains("is fine") && text.contains("warning: no provider"),
            "{text}"
        );
        let (result, text) = check(true, &[("OPENAI_API_KEY", "k")]);
        assert!(result.is_ok());
        assert_eq!(
            text,
            "{\"ok\":true,\"file\":null,\"faults\":[],\"warnings\":[]}\n"
        );
    }

    #[test]
    fn a_bad_one_fails_with_its_faults() {
        let (result, text) = check(false, &[("IBEX_CONTEXT__DEADLINE_MS", "soon")]);
        assert!(
            matches!(result, Err(CliError::Config(faults)) if faults.to_string().contains("context.deadline_ms"))
        );
        assert_eq!(text, "");
        let (result, text) = check(true, &[("IBEX_CONTEXT__DEADLINE", "40")]);
        assert!(matches!(result, Err(CliError::Reported)));
        assert!(
            text.contains("\"nearest\":\"IBEX_CONTEXT__DEADLINE_MS\"")
                && text.contains("\"ok\":false"),
            "{text}"
        );
    }
}
