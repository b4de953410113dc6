//! How an input is taken apart: a few bytes that choose, then the text itself, so that a corpus file can be read and written by hand.

/// An input on its way.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte; 0 at the end.
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Everything that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Between two texts of one input: a byte that no text holds.
const BETWEEN_TEXTS: u8 = 0xff;

/// The texts of an input.
pub(super) fn texts(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == BETWEEN_TEXTS)
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

/// `bytes` in pieces, some of them empty. The seed says how long they are and where they are cut.
pub(super) fn pieces(bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    let longest = [1, 2, 7, 64, 1_024, 16_384][usize::from(seed) % 6];
    let mut state = u32::from(seed) | 1;
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (state >> 16) as usize % (longest + 1);
        let (piece, left) = rest.split_at(length.min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces
}
