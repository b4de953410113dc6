//! `ibex memory import`: a file of any size through the write path, a batch at a time.
//!
//! Where it stands is kept beside the store after each batch, so a broken-off import goes on where it stopped. Starting over is always
//! right too, only slower: what is stored already counts as a duplicate.

mod lines;
mod progress;
mod standing;

use std::io;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::Principal;
use crate::error::ApiError;
use crate::memory::write::{WriteError, write};

use super::args::MemoryImportArgs;
use super::remember::reason;
use super::{CliError, Desk, Out, serve};

use lines::{Batch, Lines, Text};
use progress::Progress;
use standing::{Fingerprint, Place, Standing, Tally};

/// What a finished or stopped import tells.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    tally: &'a Tally,
    lines: u64,
    finished: bool,
}

/// Imports a file.
///
/// # Errors
/// When the file cannot be read, lines were refused, the store fails, or somebody stops it.
pub(super) async fn run(
    args: MemoryImportArgs,
    desk: &Desk<'_>,
    app: &App,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let unreadable =
        |e: &io::Error| CliError::Failed(format!("{} cannot be read: {e}", args.file.display()));
    let who = desk.principal(&args.scope).await?;
    let fingerprint = Fingerprint::of(&args.file).map_err(|e| unreadable(&e))?;
    let place = Place::of(&app.config.store.path, &args.file, who.scope());
    let mut standing = Standing::new(fingerprint);
    if args.resume {
        if let Some(known) = place.load(&standing.fingerprint) {
            standing = known;
        }
    } else {
        place.clear()?;
    }
    let mut lines =
        Lines::open(&args.file, standing.offset, standing.line).map_err(|e| unreadable(&e))?;
    let mut progress = Progress::new(standing.fingerprint.bytes, standing.offset);
    if standing.offset > 0 {
        progress.say(format_args!("going on after line {}", standing.line))?;
    }
    let stop = serve::Signals::take()?.stop(app);
    let finished = loop {
        let batch = lines.batch(args.batch).map_err(|e| unreadable(&e))?;
        if batch.is_empty() {
            break true;
        }
        let mut import = Import {
            app,
            who: &who,
            standing: &mut standing,
            progress: &mut progress,
        };
        import.batch(&batch).await?;
        (standing.offset, standing.line) = (lines.offset(), lines.number());
        place.save(&standing)?;
        progress.reached(&standing)?;
        if stop.gently.is_cancelled() {
            break false;
        }
    };
    progress.end();
    // Nothing waits for a signal any more.
    stop.gently.cancel();
    stop.at_once.cancel();
    if finished {
        place.clear()?;
    }
    conclude(&standing, finished, out)
}

fn conclude(standing: &Standing, finished: bool, out: &mut Out<'_>) -> Result<(), CliError> {
    let tally = &standing.tally;
    let summary = Summary {
        tally,
        lines: standing.line,
        finished,
    };
    out.one(&summary, tally)?;
    match (finished, tally.failed) {
        (false, _) => Err(CliError::Failed(format!(
            "stopped after line {}; the same command goes on from there",
            standing.line
        ))),
        (true, 0) => Ok(()),
        (true, failed) => Err(CliError::Failed(format!(
            "{failed} of {} lines could not be imported",
            tally.all()
        ))),
    }
}

/// One import on its way.
struct Import<'a> {
    app: &'a App,
    who: &'a Principal,
    standing: &'a mut Standing,
    progress: &'a mut Progress,
}

impl Import<'_> {
    /// Writes the lines of a batch that hold JSON; says which do not.
    async fn batch(&mut self, batch: &Batch) -> Result<(), CliError> {
        let mut numbers = Vec::with_capacity(batch.len());
        let mut objects: Vec<&RawValue> = Vec::with_capacity(batch.len());
        for line in batch {
            match object(&line.text) {
                Ok(object) => {
                    numbers.push(line.number);
                    objects.push(object);
                }
                Err(reason) => self.failed(line.number, &reason)?,
            }
        }
        let outcomes = write(self.app, self.who, &objects).await;
        for (number, outcome) in numbers.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => self.standing.tally.imported += 1,
                Err(WriteError::Duplicate(_)) => self.standing.tally.duplicates += 1,
                Err(
                    error @ (WriteError::Invalid(_) | WriteError::OwnText | WriteError::Tombstoned),
                ) => {
                    self.failed(number, &hinted(&reason(&ApiError::from(error))))?;
                }
                // Not the line's fault: the batch is tried again when the import goes on.
                Err(
                    error @ (WriteError::EmbeddingFailed
                    | WriteError::StoreUnavailable
                    | WriteError::LedgerUnavailable
                    | WriteError::Settled
                    | WriteError::Stale
                    | WriteError::Forgotten),
                ) => {
                    return Err(CliError::Failed(format!(
                        "line {number}: {error}; the same command goes on from there"
                    )));
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, number: u64, reason: &str) -> Result<(), CliError> {
        self.standing.tally.failed += 1;
        Ok(self.progress.fault(number, reason)?)
    }
}

/// The line as a JSON value that the write path can look into.
fn object(text: &Text) -> Result<&RawValue, String> {
    let text = match text {
        Text::Whole(text) => text,
        Text::TooLong => return Err(format!("is longer than {} bytes", lines::LONGEST)),
        Text::NotUtf8 => return Err("is not UTF-8".to_owned()),
    };
    serde_json::from_str(text).map_err(|e| format!("is not valid JSON (column {})", e.column()))
}

/// The mistake that an exported file invites gets its answer at once.
fn hinted(reason: &str) -> String {
    if reason.contains("user_id ") {
        format!("{reason}; --user names the user of a whole file")
    } else {
        reason.to_owned()
    }
}
