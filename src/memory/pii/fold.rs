//! Folds look-alike characters to ASCII before detection (full-width forms, digits of other
//! scripts, circled and raised digits, unusual dashes and spaces) and drops invisible ones, keeping
//! for every byte the place it came from, so that a finding in the folded text maps to a range of
//! the original.

use std::borrow::Cow;
use std::ops::Range;

/// A text as the detectors read it, with the way back to the original.
pub(super) struct Folded<'t> {
    original: &'t str,
    text: Cow<'t, str>,
    /// For each byte of `text` the start of the original character behind it; `None` when
    /// nothing was folded.
    origins: Option<Vec<usize>>,
}

impl<'t> Folded<'t> {
    /// Folds `original`; borrows it when there is nothing to fold, which is the usual case.
    pub(super) fn new(original: &'t str) -> Self {
        if original.is_ascii()
            || !original
                .chars()
                .any(|letter| folded(letter) != Folding::Kept)
        {
            return Self {
                original,
                text: Cow::Borrowed(original),
                origins: None,
            };
        }
        let mut text = String::with_capacity(original.len());
        let mut origins = Vec::with_capacity(original.len());
        let mut previous = Folding::Dropped;
        let mut letters = original.char_indices().peekable();
        while let Some((start, letter)) = letters.next() {
            let folding = folded(letter);
            let written = match folding {
                Folding::Kept => letter,
                Folding::To(letter) => letter,
                Folding::Dropped => continue,
                Folding::Digit(digit, style) => {
                    let next = letters.peek().map(|(_, next)| *next);
                    let mark = style.marks(previous, next.map_or(Folding::Dropped, digit_of));
                    if mark { ' ' } else { digit }
                }
            };
            text.push(written);
            origins.resize(text.len(), start);
            previous = digit_in(letter, folding);
        }
        Self {
            original,
            text: Cow::Owned(text),
            origins: Some(origins),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The range of the original behind a range of the folded text. Invisible characters inside
    /// are covered, those at the edges are not.
    pub(super) fn original_range(&self, range: Range<usize>) -> Range<usize> {
        let Some(origins) = &self.origins else {
            return range;
        };
        let origin = |index: usize| origins.get(index).copied().unwrap_or(self.original.len());
        let last = origin(range.end.saturating_sub(1));
        let width = self
            .original
            .get(last..)
            .and_then(|rest| rest.chars().next())
            .map_or(0, char::len_utf8);
        origin(range.start)..last + width
    }
}

/// What becomes of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folding {
    Kept,
    To(char),
    /// A digit in a shape that also marks notes and items of a list.
    Digit(char, Style),
    Dropped,
}

/// Shapes of digits that are not always part of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Circled, in parentheses or with a full stop.
    Enclosed,
    /// Superscript and subscript.
    Raised,
}

impl Style {
    /// Whether a digit of this style between two characters is a mark beside a number rather than
    /// part of it: the item in `①138…`, the note or exponent in `555-0132²`.
    fn marks(self, previous: Folding, next: Folding) -> bool {
        let plain = |folding| matches!(folding, Folding::To(_));
        let digit = |folding| plain(folding) || matches!(folding, Folding::Digit(_, _));
        match self {
            Self::Enclosed => !digit(previous) && plain(next),
            Self::Raised => plain(previous) && !digit(next),
        }
    }
}

/// The folding of a character as far as it is a digit: `To` for a plain one of any script.
fn digit_of(letter: char) -> Folding {
    digit_in(letter, folded(letter))
}

/// The same for a character whose folding is known.
fn digit_in(letter: char, folding: Folding) -> Folding {
    match folding {
        Folding::Kept if letter.is_ascii_digit() => Folding::To(letter),
        Folding::To(digit) if digit.is_ascii_digit() => Folding::To(digit),
        Folding::Digit(digit, style) => Folding::Digit(digit, style),
        Folding::Kept | Folding::To(_) | Folding::Dropped => Folding::Dropped,
    }
}

/// Whether a character shows nothing: the code points that Unicode calls default ignorable
/// (fillers, zero-width and direction marks, variation selectors, tags) and the shorthand and
/// musical format controls.
pub(crate) const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Letters of Latin, Greek and Cyrillic, then kana, Chinese and Korean: nearly all of what is not
/// ASCII, and nothing in these blocks folds.
const fn common(letter: char) -> bool {
    matches!(letter,
        '\u{c0}'..='\u{34e}' | '\u{350}'..='\u{61b}' | '\u{3001}'..='\u{3163}'
        | '\u{3165}'..='\u{a61f}' | '\u{ac00}'..='\u{d7ff}')
}

/// What a character is read as on its own.
fn folded(letter: char) -> Folding {
    if letter.is_ascii() || common(letter) {
        return Folding::Kept;
    }
    if is_invisible(letter) {
        return Folding::Dropped;
    }
    let code = u32::from(letter);
    match code {
        // The frame of a keycap, which follows its digit.
        0x20e3 => Folding::Dropped,
        0xa0 | 0x2000..=0x200a | 0x202f | 0x205f | 0x3000 => Folding::To(' '),
        0x2010..=0x2015 | 0x2043 | 0x2212 | 0xfe58 | 0xfe63 => Folding::To('-'),
        0x2024 | 0xfe52 => Folding::To('.'),
        0xfe6b => Folding::To('@'),
        0xff01..=0xff5e => char::from_u32(code - 0xfee0).map_or(Folding::Kept, Folding::To),
        // Thirteen styles of the mathematical alphabet, each A to Z and a to z.
        0x1d400..=0x1d6a3 => latin((code - 0x1d400) % 52),
        0x1d7ce..=0x1d7ff => digit(code - 0x1d7ce).map_or(Folding::Kept, Folding::To),
        0xb2 | 0xb3 | 0xb9 | 0x2070..=0x2089 => raised(code),
        0x2460..=0x2793 | 0x1f100..=0x1f10a => enclosed(code),
        _ => other_script(code).map_or(Folding::Kept, Folding::To),
    }
}

/// The digit of a value, of which the tens are ignored.
fn digit(value: u32) -> Option<char> {
    char::from_digit(value % 10, 10)
}

/// The letter at a place of A to Z followed by a to z.
fn latin(place: u32) -> Folding {
    let first = if place < 26 { 'A' } else { 'a' };
    char::from_u32(u32::from(first) + place % 26).map_or(Folding::Kept, Folding::To)
}

/// Superscript and subscript digits.
fn raised(code: u32) -> Folding {
    let value = match code {
        0xb2 | 0xb3 => code - 0xb0,
        0xb9 => 1,
        0x2070 | 0x2074..=0x2079 => code - 0x2070,
        0x2080..=0x2089 => code - 0x2080,
        _ => return Folding::Kept,
    };
    digit(value).map_or(Folding::Kept, |digit| Folding::Digit(digit, Style::Raised))
}

/// Digits in circles, in parentheses, or followed by a full stop or a comma.
fn enclosed(code: u32) -> Folding {
    /// First and last of each row of digits, and the value of the first.
    const ROWS: &[(u32, u32, u32)] = &[
        (0x2460, 0x2468, 1),
        (0x2474, 0x247c, 1),
        (0x2488, 0x2490, 1),
        (0x24ea, 0x24ea, 0),
        (0x24f5, 0x24fd, 1),
        (0x24ff, 0x24ff, 0),
        (0x2776, 0x277e, 1),
        (0x2780, 0x2788, 1),
        (0x278a, 0x2792, 1),
        (0x1f100, 0x1f100, 0),
        (0x1f101, 0x1f10a, 0),
    ];
    ROWS.iter()
        .find(|(first, last, _)| (*first..=*last).contains(&code))
        .and_then(|(first, _, value)| digit(code - first + value))
        .map_or(Folding::Kept, |digit| {
            Folding::Digit(digit, Style::Enclosed)
        })
}

/// The decimal digits of other scripts.
fn other_script(code: u32) -> Option<char> {
    /// The zeros, in order.
    const ZEROS: &[u32] = &[
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50,
        0xed0, 0xf20, 0x1040, 0x17e0, 0x1810, 0x1946, 0xa8d0, 0xa900, 0xabf0, 0x1fbf0,
    ];
    let after = ZEROS.partition_point(|zero| *zero <= code);
    let value = code - ZEROS.get(after.checked_sub(1)?)?;
    (value < 10).then(|| digit(value)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        for text in ["plain", "façon", "日本語"] {
            assert!(matches!(Folded::new(text).text, Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn ranges_map_back_over_invisible_and_wide_characters() {
        let original = "a\u{200b}４\u{200b}２\u{2011}１ü\u{200b}";
        let folded = Folded::new(original);
        assert_eq!(folded.text(), "a42-1ü");
        assert_eq!(
            original.get(folded.original_range(1..5)).unwrap(),
            "４\u{200b}２\u{2011}１"
        );
        assert_eq!(original.get(folded.original_range(5..7)).unwrap(), "ü");
    }

    #[test]
    fn digits_of_any_shape_fold_and_marks_beside_numbers_do_not() {
        for (original, folded) in [
            ("①②⓪ ❸➃ ⑸⒍ ⁴₂¹", "120 34 56 421"),
            ("१२३ ٤٥ ௬ ꩐𝟗🯰", "123 45 6 ꩐90"),
            ("4️⃣2️⃣", "42"),
            ("4①5 x² 10²³", "415 x2 1023"),
            ("①138 555² 7③", " 138 555  73"),
            ("𝗃𝖺𝗇𝖾𝐙", "janeZ"),
        ] {
            assert_eq!(Folded::new(original).text(), folded);
        }
    }

    #[test]
    fn invisible_characters_are_dropped() {
        for letter in "\u{ad}\u{34f}\u{61c}\u{1160}\u{17b5}\u{180e}\u{200d}\u{202e}\u{2066}\u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{fff8}\u{1bca0}\u{1d17a}\u{e0061}\u{e0fff}".chars() {
            assert_eq!(Folded::new(&format!("4{letter}2")).text(), "42", "{letter:?}");
        }
        assert!(!" aé中\u{fffd}😀".chars().any(is_invisible));
    }
}
