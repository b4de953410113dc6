//! An export as a file: one JSON object a line - a head, batches of rows, an end with the sums. `.gz` at the end of its name compresses it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::OrgId;
use crate::store::files;
use crate::store::transfer::{Batch, Sums, cell_from_json, cell_to_json, table};

/// The version of the file's form.
const VERSION: u32 = 1;
/// Longest line, in bytes: a batch of the greatest memories with the greatest vectors stays far below.
const LONGEST: u64 = 256 << 20;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The version of the form.
    ibex_export: u32,
    /// Names the export, in hexadecimal digits.
    pub(super) id: String,
    /// Tells whether two servers have the same keys, and nothing else about them.
    pub(super) keys: String,
}

impl Head {
    pub(super) fn new(id: String, keys: String) -> Self {
        Self {
            ibex_export: VERSION,
            id,
            keys,
        }
    }
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Batches before it.
    pub(super) batches: u64,
    /// The store's revision.
    pub(super) revision: i64,
    /// Counts and digests.
    pub(super) sums: Sums,
}

#[derive(Serialize, Deserialize)]
struct Rows {
    org: OrgId,
    table: String,
    rows: Vec<Vec<Value>>,
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Head(Head),
    Rows(Rows),
    End(End),
}

/// What a reader finds.
pub(super) enum Part {
    Batch(Batch),
    End(End),
}

/// Writes an export. Nothing stands under the file's name before it is complete.
pub(super) struct Writer {
    to: Sink,
    path: PathBuf,
    draft: PathBuf,
}

enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Gzip(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Gzip(to) => to.flush(),
        }
    }
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "gz")
}

impl Writer {
    /// Begins a file that only its owner may read: it holds every text and the digests of all tokens.
    pub(super) fn create(path: &Path, head: &Head) -> io::Result<Self> {
        if path.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is such a file already",
            ));
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(".partial");
        let draft = PathBuf::from(draft);
        let file = files::open_private(&draft)?;
        file.set_len(0)?;
        let file = BufWriter::new(file);
        let to = if is_gzip(path) {
            Sink::Gzip(Box::new(GzEncoder::new(file, Compression::fast())))
        } else {
            Sink::Plain(file)
        };
        let mut this = Self {
            to,
            path: path.to_owned(),
            draft,
        };
        this.line(&Line::Head(head.clone()))?;
        Ok(this)
    }

    pub(super) fn batch(&mut self, batch: &Batch) -> io::Result<()> {
        let rows = batch.rows.iter();
        self.line(&Line::Rows(Rows {
            org: batch.org,
            table: batch.table.name.to_owned(),
            rows: rows
                .map(|row| row.iter().map(cell_to_json).collect())
                .collect(),
        }))
    }

    /// Writes the end, and gives the file its name once all of it is on disk.
    pub(super) fn finish(mut self, end: End) -> io::Result<()> {
        self.line(&Line::End(end))?;
        let file = match self.to {
            Sink::Plain(to) => to.into_inner()?,
            Sink::Gzip(to) => to.finish()?.into_inner()?,
        };
        file.sync_all()?;
        std::fs::rename(&self.draft, &self.path)
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.to, line)?;
        self.to.write_all(b"\n")
    }
}

/// Reads an export.
pub(super) struct Reader {
    from: Box<dyn BufRead + Send>,
    line: u64,
}

impl Reader {
    pub(super) fn open(path: &Path) -> io::Result<(Self, Head)> {
        let file = File::open(path)?;
        let from: Box<dyn BufRead + Send> = if is_gzip(path) {
            Box::new(BufReader::new(GzDecoder::new(file)))
        } else {
            Box::new(BufReader::new(file))
        };
        let mut this = Self { from, line: 0 };
        match this.next_line()? {
            Some(Line::Head(head)) if head.ibex_export == VERSION => Ok((this, head)),
            Some(Line::Head(_)) => Err(this.fault("the export is of another version")),
            _ => Err(this.fault("this is no export")),
        }
    }

    /// The next batch, or the end.
    pub(super) fn part(&mut self) -> io::Result<Part> {
        match self.next_line()? {
            Some(Line::Rows(rows)) => {
                let batch = batch(&rows);
                batch
                    .map(Part::Batch)
                    .ok_or_else(|| self.fault("a row is damaged"))
            }
            Some(Line::End(end)) => Ok(Part::End(end)),
            Some(Line::Head(_)) => Err(self.fault("a second head")),
            None => Err(self.fault("the export ends too early: it is not complete")),
        }
    }

    fn next_line(&mut self) -> io::Result<Option<Line>> {
        self.line += 1;
        let mut text = Vec::new();
        (&mut self.from)
            .take(LONGEST)
            .read_until(b'\n', &mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        // The parser's own text may quote what it read.
        let line = serde_json::from_slice(&text);
        line.map(Some)
            .map_err(|_| self.fault("is not a line of an export"))
    }

    fn fault(&self, what: &str) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {}: {what}", self.line),
        )
    }
}

fn batch(rows: &Rows) -> Option<Batch> {
    let table = table(&rows.table).ok()?;
    let row = |values: &Vec<Value>| {
        let whole = values.len() == table.columns.len();
        let cells = values.iter().zip(table.columns);
        whole.then(|| {
            cells
                .map(|(value, column)| cell_from_json(value, column.kind))
                .collect::<Option<Vec<_>>>()
        })?
    };
    Some(Batch {
        org: rows.org,
        table,
        rows: rows.rows.iter().map(row).collect::<Option<Vec<_>>>()?,
    })
}
