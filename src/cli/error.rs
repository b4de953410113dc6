//! What a failed command prints, and the code it exits with.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::config::ConfigFaults;
use crate::store::StoreError;

use super::Cli;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigFaults),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The command line leaves something open or contradicts itself: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Something else, in plain words.
    #[error("{0}")]
    Failed(String),
    /// The faults have been printed already.
    #[error("the configuration has faults")]
    Reported,
    /// The result could not be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Reads the command line. Help, version and usage errors are printed here and end with the given code.
///
/// # Errors
/// The exit code, when there is no command to run.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    Cli::try_parse_from(args).map_err(|error| match error.print() {
        Err(failed) if failed.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Ok(()) | Err(_) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    })
}

/// The exit code of a finished command; what went wrong goes to `stderr`.
pub fn finish(result: Result<(), CliError>, stderr: &mut dyn Write) -> ExitCode {
    let (error, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        // The reader has seen enough: `ibex memory list | head` is no failure.
        Err(CliError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(CliError::Reported) => return ExitCode::FAILURE,
        Err(error @ CliError::Usage(_)) => (error, ExitCode::from(2)),
        Err(error) => (error, ExitCode::FAILURE),
    };
    // Nobody is left to tell when standard error is closed.
    writeln!(stderr, "ibex: {error}").map_or(ExitCode::FAILURE, |()| code)
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::process::ExitCode;

    use super::{CliError, finish};

    fn code_and_text(error: CliError) -> (ExitCode, String) {
        let mut stderr = Vec::new();
        let code = finish(Err(error), &mut stderr);
        (code, String::from_utf8(stderr).unwrap())
    }

    #[test]
    fn failures_have_a_code_and_a_plain_text() {
        assert_eq!(
            code_and_text(CliError::Usage("say which".to_owned())),
            (ExitCode::from(2), "ibex: say which\n".to_owned())
        );
        assert_eq!(
            code_and_text(CliError::Failed("no".to_owned())),
            (ExitCode::FAILURE, "ibex: no\n".to_owned())
        );
        assert_eq!(
            code_and_text(CliError::Reported),
            (ExitCode::FAILURE, String::new())
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = io::Error::from(ErrorKind::BrokenPipe);
        assert_eq!(
            code_and_text(CliError::Output(closed)),
            (ExitCode::SUCCESS, String::new())
        );
        let full = io::Error::from(ErrorKind::StorageFull);
        assert_eq!(code_and_text(CliError::Output(full)).0, ExitCode::FAILURE);
    }
}
