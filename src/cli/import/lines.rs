//! Lines of a file, a bounded batch at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Longest line in bytes: a memory with all that may go with it is far smaller.
pub(super) const LONGEST: usize = 1 << 20;
/// Bytes of a batch after which no further line is added.
const BATCH_BYTES: usize = 4 << 20;
/// What some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// What a line holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// All of it, without its end.
    Whole(String),
    /// More than fits; it was passed over.
    TooLong,
    /// Bytes that are no text.
    NotUtf8,
}

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number in the file, from 1.
    pub(super) number: u64,
    /// What it holds.
    pub(super) text: Text,
}

/// Lines that are written at once.
pub(super) type Batch = Vec<Line>;

/// The lines of a file, from some line on.
#[derive(Debug)]
pub(super) struct Lines<R = File> {
    reader: BufReader<R>,
    offset: u64,
    number: u64,
}

impl Lines {
    /// The lines behind `offset`, where line `number` ends.
    ///
    /// # Errors
    /// When the file cannot be opened there.
    pub(super) fn open(path: &Path, offset: u64, number: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self::new(file, offset, number))
    }
}

impl<R: Read> Lines<R> {
    fn new(file: R, offset: u64, number: u64) -> Self {
        Self {
            reader: BufReader::with_capacity(1 << 16, file),
            offset,
            number,
        }
    }

    /// Where the last line that was taken ends, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of the last line that was taken.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next lines that are not blank, at most `most`; none at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn batch(&mut self, most: usize) -> io::Result<Batch> {
        let (mut batch, mut bytes) = (Batch::new(), 0);
        while batch.len() < most && bytes < BATCH_BYTES {
            let Some(text) = self.next()? else { break };
            if let Text::Whole(text) = &text {
                if text.trim().is_empty() {
                    continue;
                }
                bytes += text.len();
            }
            batch.push(Line {
                number: self.number,
                text,
            });
        }
        Ok(batch)
    }

    fn next(&mut self) -> io::Result<Option<Text>> {
        let mut line = Vec::new();
        let limit = u64::try_from(LONGEST).unwrap_or(u64::MAX).saturating_add(1);
        let mut taken = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut line)? as u64;
        if taken == 0 {
            return Ok(None);
        }
        let whole = line.len() <= LONGEST || line.ends_with(b"\n");
        if !whole {
            taken = taken.saturating_add(self.pass_over()?);
        }
        self.offset += taken;
        self.number += 1;
        if !whole {
            return Ok(Some(Text::TooLong));
        }
        let Ok(mut text) = String::from_utf8(line) else {
            return Ok(Some(Text::NotUtf8));
        };
        if self.number == 1 && text.starts_with(BYTE_ORDER_MARK) {
            text.remove(0);
        }
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
        Ok(Some(Text::Whole(text)))
    }

    /// Drops the rest of a line; answers with its length.
    fn pass_over(&mut self) -> io::Result<u64> {
        let mut passed = 0;
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(length);
            passed += length as u64;
            if end.is_some() || length == 0 {
                return Ok(passed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Line, Lines, Text};

    fn whole(number: u64, text: &str) -> Line {
        Line {
            number,
            text: Text::Whole(text.to_owned()),
        }
    }

    #[test]
    fn lines_come_in_batches_with_their_numbers_and_blank_ones_are_passed_over() {
        let file = "\u{feff}a\r\n\nb\n  \nc".as_bytes();
        let mut lines = Lines::new(file, 0, 0);
        assert_eq!(lines.batch(2).unwrap(), [whole(1, "a"), whole(3, "b")]);
        assert_eq!((lines.offset(), lines.number()), (9, 3));
        assert_eq!(lines.batch(2).unwrap(), [whole(5, "c")]);
        assert_eq!(lines.offset(), file.len() as u64);
        assert_eq!(lines.batch(2).unwrap(), []);
    }

    #[test]
    fn a_line_without_end_and_bytes_that_are_no_text_cost_only_themselves() {
        let mut file = vec![b'x'; LONGEST * 2];
        file.extend_from_slice(b"\n\xff\nafter\n");
        let mut lines = Lines::new(&*file, 0, 0);
        let batch = lines.batch(10).unwrap();
        assert_eq!(batch[0].text, Text::TooLong);
        assert_eq!(batch[1].text, Text::NotUtf8);
        assert_eq!(batch[2], whole(3, "after"));
        assert_eq!(lines.offset(), file.len() as u64);
    }

    #[test]
    fn a_batch_of_long_lines_is_shorter() {
        let file = format!("{}\n", "x".repeat(LONGEST)).repeat(10);
        let mut lines = Lines::new(file.as_bytes(), 0, 0);
        assert_eq!(lines.batch(100).unwrap().len(), 4);
    }
}
