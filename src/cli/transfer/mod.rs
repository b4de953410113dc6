//! `ibex export` and `ibex import`: a whole store out of one engine and into another, checked by counts and digests.
//!
//! An import notes in the store that it fills how far it is, with each batch, so one that broke off goes on where it stopped.

mod file;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::mpsc;

use super::output::Record;
use super::{CliError, Out};
use crate::ids::{OrgId, hex};
use crate::seams::{Entropy, SystemEntropy};
use crate::store::Store;
use crate::store::keys::ServerKeys;
use crate::store::transfer::{Batch, ExportId, Standing, Sums};

use file::{End, Head, Part, Reader, Writer};

/// Batches between the store and the file.
const QUEUE: usize = 8;
/// What the bar shows.
const TEMPLATE: &str = "{spinner} {msg}: {human_pos} rows, {per_sec}";

/// `ibex export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// File to write; `.gz` at its end compresses it. It holds every memory and the digests of all tokens
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `ibex import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// File that `ibex export` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Import although this server has other keys: no exported token is valid here then, and every session begins anew
    #[arg(long)]
    pub other_keys: bool,
}

/// One table of a finished move.
#[derive(Debug, Serialize)]
struct Moved {
    table: String,
    rows: u64,
    digest: String,
}

impl Record for Moved {
    const HEADERS: &'static [&'static str] = &["table", "rows", "digest"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.table.clone(),
            self.rows.to_string(),
            self.digest.clone(),
        ]
    }
}

/// Writes the whole store into a file.
///
/// # Errors
/// When there is such a file, it cannot be written, or the store fails.
pub(super) async fn export(
    args: ExportArgs,
    store: &dyn Store,
    keys: &ServerKeys,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let unwritable = |e: io::Error| unusable(&args.file, "written", &e);
    let mut id: ExportId = [0; 16];
    SystemEntropy
        .fill(&mut id)
        .map_err(|e| CliError::Failed(e.to_string()))?;
    let head = Head::new(hex(&id), keys.check());
    let mut writer = Writer::create(&args.file, &head).map_err(unwritable)?;
    let (mut sums, mut batches) = (Sums::default(), 0);
    let bar = bar("exported");
    let revision = each_batch(store, Vec::new(), |batch| {
        sums.add(&batch);
        batches += 1;
        bar.inc(batch.rows.len() as u64);
        writer.batch(&batch).map_err(unwritable)
    })
    .await?;
    bar.finish_and_clear();
    let end = End {
        batches,
        revision,
        sums: sums.clone(),
    };
    writer.finish(end).map_err(unwritable)?;
    tell(&sums, out)
}

/// Fills an empty store from a file.
///
/// # Errors
/// When the file cannot be read or is not complete, the store holds something else, the keys are others, the store fails, or what is
/// there in the end is not what was exported.
pub(super) async fn import(
    args: ImportArgs,
    store: &dyn Store,
    keys: &ServerKeys,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let unreadable = |e: io::Error| unusable(&args.file, "read", &e);
    let (mut reader, head) = Reader::open(&args.file).map_err(unreadable)?;
    if head.keys != keys.check() && !args.other_keys {
        return Err(CliError::Failed(
            "this server has other keys than the exported one, so no exported token would be valid: set keys.token_digest and \
             keys.session to those of the exported server (its key file stands beside its store), or say --other-keys"
                .to_owned(),
        ));
    }
    let export = from_hex(&head.id)
        .ok_or_else(|| CliError::Failed("the export has no identifier".to_owned()))?;
    let standing = standing(store, export).await?;
    let mut import = Import {
        store,
        export,
        standing,
        orgs: Vec::new(),
        number: 0,
    };
    let bar = bar("imported");
    let end = loop {
        match reader.part().map_err(unreadable)? {
            Part::Batch(batch) => {
                let rows = batch.rows.len() as u64;
                import.batch(batch).await?;
                bar.inc(rows);
            }
            Part::End(end) => break end,
        }
    };
    bar.finish_and_clear();
    import.finish(&end, out).await
}

/// What an earlier import of the same file left; without one the store has to be empty.
async fn standing(store: &dyn Store, export: ExportId) -> Result<Standing, CliError> {
    if let Some(known) = store.load_standing(export).await? {
        return Ok(known);
    }
    if !store.orgs().await?.is_empty() {
        return Err(CliError::Failed(
            "this store is not empty: an import fills a new one (after `ibex migrate`, before `ibex init`)".to_owned(),
        ));
    }
    Ok(Standing {
        batches: 0,
        finished: false,
    })
}

/// An import on its way.
struct Import<'a> {
    store: &'a dyn Store,
    export: ExportId,
    standing: Standing,
    orgs: Vec<OrgId>,
    number: u64,
}

impl Import<'_> {
    async fn batch(&mut self, batch: Batch) -> Result<(), CliError> {
        if self.orgs.last() != Some(&batch.org) {
            self.orgs.push(batch.org);
        }
        let number = self.number;
        self.number += 1;
        if number < self.standing.batches || self.standing.finished {
            return Ok(());
        }
        let loading = self.store.load(self.export, number, batch);
        loading.await.map_err(|error| {
            CliError::Failed(format!(
                "batch {number}: {error}; the same command goes on from there"
            ))
        })
    }

    async fn finish(self, end: &End, out: &mut Out<'_>) -> Result<(), CliError> {
        if self.number != end.batches {
            return Err(CliError::Failed(
                "the export is not complete: batches are missing".to_owned(),
            ));
        }
        if !self.standing.finished {
            self.store.end_load(self.export, end.revision).await?;
        }
        let mut sums = Sums::default();
        if !self.orgs.is_empty() {
            let bar = bar("verified");
            each_batch(self.store, self.orgs, |batch| {
                sums.add(&batch);
                bar.inc(batch.rows.len() as u64);
                Ok(())
            })
            .await?;
            bar.finish_and_clear();
        }
        let differences = end.sums.differences(&sums);
        if differences.is_empty() {
            return tell(&sums, out);
        }
        Err(CliError::Failed(format!(
            "what is stored is not what was exported, in: {}{}",
            differences.join(", "),
            if self.standing.finished {
                "; the import was over before, so this may be what was written since"
            } else {
                ""
            }
        )))
    }
}

/// Hands every batch of a dump to `work`; answers the revision.
async fn each_batch(
    store: &dyn Store,
    orgs: Vec<OrgId>,
    mut work: impl FnMut(Batch) -> Result<(), CliError>,
) -> Result<i64, CliError> {
    let (to, mut from) = mpsc::channel(QUEUE);
    let receiving = async move {
        while let Some(batch) = from.recv().await {
            work(batch)?;
        }
        Ok::<(), CliError>(())
    };
    let (revision, received) = tokio::join!(store.dump(orgs, to), receiving);
    received?;
    Ok(revision?)
}

fn tell(sums: &Sums, out: &mut Out<'_>) -> Result<(), CliError> {
    let tables: Vec<Moved> = sums
        .iter()
        .map(|(table, sum)| Moved {
            table: table.to_owned(),
            rows: sum.rows,
            digest: hex(&sum.digest.map(u64::to_be_bytes).concat())
                .chars()
                .take(16)
                .collect(),
        })
        .collect();
    Ok(out.list(&tables)?)
}

fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_message(what);
    match ProgressStyle::with_template(TEMPLATE) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn unusable(file: &Path, verb: &str, error: &io::Error) -> CliError {
    CliError::Failed(format!("{} cannot be {verb}: {error}", file.display()))
}

fn from_hex(text: &str) -> Option<ExportId> {
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}
