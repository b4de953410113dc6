//! Values as bytes: numbers that are mostly small take few, texts come with their length. What is read shares the bytes it is read from.

use bytes::Bytes;

use crate::ids::MemoryId;
use crate::tokens::{Family, Tally};

/// Writes a value.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// With room for so many bytes.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Bytes whose number the reader knows.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A number that is mostly small: seven bits a byte, the lowest first.
    pub(super) fn number(&mut self, number: impl Into<u64>) {
        let mut left = number.into();
        while left >= 0x80 {
            self.0.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        self.0.push((left & 0x7f) as u8);
    }

    /// A number that may be negative.
    pub(super) fn signed(&mut self, number: i64) {
        self.raw(&number.to_be_bytes());
    }

    /// A number that may be missing.
    pub(super) fn optional(&mut self, number: Option<u32>) {
        self.number(number.map_or(0, |n| u64::from(n) + 1));
    }

    /// Bytes with their number.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    pub(super) fn tally(&mut self, tally: Tally) {
        let (family, tokens, bytes) = tally.parts();
        self.byte(match family {
            Family::O200kBase => 0,
            Family::Cl100kBase => 1,
            Family::Claude => 2,
            Family::Unknown => 3,
        });
        self.number(tokens);
        self.number(bytes);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a value. Every answer is nothing where the bytes say something else.
#[derive(Debug)]
pub(super) struct Reader(Bytes);

impl Reader {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<Bytes> {
        (self.0.len() >= count).then(|| self.0.split_to(count))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.as_ref().try_into().ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit. No number is written with a last byte of zero.
            let overflows = shift == 63 && bits > 1;
            if overflows || (byte == 0 && shift > 0) {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn optional(&mut self) -> Option<Option<u32>> {
        match self.number()? {
            0 => Some(None),
            more => u32::try_from(more - 1).ok().map(Some),
        }
    }

    pub(super) fn bytes(&mut self) -> Option<Bytes> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.into()).ok()
    }

    pub(super) fn memory_id(&mut self) -> Option<MemoryId> {
        self.array().map(MemoryId::from_bytes)
    }

    pub(super) fn tally(&mut self) -> Option<Tally> {
        let family = match self.byte()? {
            0 => Family::O200kBase,
            1 => Family::Cl100kBase,
            2 => Family::Claude,
            3 => Family::Unknown,
            _ => return None,
        };
        Some(Tally::kept(family, self.small()?, self.small()?))
    }

    /// The value, if it was read to its end.
    pub(super) fn whole<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Reader, Writer};

    fn written(write: impl FnOnce(&mut Writer)) -> Reader {
        let mut writer = Writer::default();
        write(&mut writer);
        Reader::new(writer.finish().into())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, signed: i64, optional: Option<u32>, bytes: Vec<u8>, small in 0..300_u64) {
            let mut reader = written(|w| {
                w.number(number);
                w.signed(signed);
                w.optional(optional);
                w.bytes(&bytes);
                w.number(small);
            });
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.signed(), Some(signed));
            prop_assert_eq!(reader.optional(), Some(optional));
            prop_assert_eq!(reader.bytes().unwrap(), bytes);
            prop_assert_eq!(reader.whole(()), None);
            prop_assert_eq!(reader.number(), Some(small));
            prop_assert_eq!(reader.whole(7), Some(7));
        }

        #[test]
        fn nothing_is_read_from_what_was_cut_off(number: u64, bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            let mut writer = Writer::default();
            writer.number(number);
            writer.bytes(&bytes);
            let mut whole = writer.finish();
            whole.pop();
            let mut reader = Reader::new(whole.into());
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.bytes(), None);
        }
    }

    #[test]
    fn a_number_has_one_spelling() {
        for other in [
            &[0x80, 0x00][..],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ] {
            assert_eq!(Reader::new(other.to_vec().into()).number(), None);
        }
        let mut most = written(|w| w.number(u64::MAX));
        assert_eq!(most.number(), Some(u64::MAX));
    }
}
