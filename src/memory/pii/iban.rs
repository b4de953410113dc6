//! IBANs: country and length as registered with SWIFT (ISO 13616), check digits by mod 97
//! (ISO 7064).

use super::text::View;
use super::{Finding, Kind};

/// An IBAN written in capitals whose check digits are right.
const CAPITALS: f32 = 0.97;
/// The same in small letters.
const SMALL: f32 = 0.88;

/// Country codes with the length of their IBANs.
static LENGTHS: &[(&str, usize)] = &[
    ("AD", 24),
    ("AE", 23),
    ("AL", 28),
    ("AT", 20),
    ("AZ", 28),
    ("BA", 20),
    ("BE", 16),
    ("BG", 22),
    ("BH", 22),
    ("BI", 27),
    ("BR", 29),
    ("BY", 28),
    ("CH", 21),
    ("CR", 22),
    ("CY", 28),
    ("CZ", 24),
    ("DE", 22),
    ("DJ", 27),
    ("DK", 18),
    ("DO", 28),
    ("EE", 20),
    ("EG", 29),
    ("ES", 24),
    ("FI", 18),
    ("FK", 18),
    ("FO", 18),
    ("FR", 27),
    ("GB", 22),
    ("GE", 22),
    ("GI", 23),
    ("GL", 18),
    ("GR", 27),
    ("GT", 28),
    ("HN", 28),
    ("HR", 21),
    ("HU", 28),
    ("IE", 22),
    ("IL", 23),
    ("IQ", 23),
    ("IS", 26),
    ("IT", 27),
    ("JO", 30),
    ("KW", 30),
    ("KZ", 20),
    ("LB", 28),
    ("LC", 32),
    ("LI", 21),
    ("LT", 20),
    ("LU", 20),
    ("LV", 21),
    ("LY", 25),
    ("MC", 27),
    ("MD", 24),
    ("ME", 22),
    ("MK", 19),
    ("MN", 20),
    ("MR", 27),
    ("MT", 31),
    ("MU", 30),
    ("NI", 28),
    ("NL", 18),
    ("NO", 15),
    ("OM", 23),
    ("PK", 24),
    ("PL", 28),
    ("PS", 29),
    ("PT", 25),
    ("QA", 29),
    ("RO", 24),
    ("RS", 22),
    ("RU", 33),
    ("SA", 24),
    ("SC", 31),
    ("SD", 18),
    ("SE", 24),
    ("SI", 19),
    ("SK", 24),
    ("SM", 27),
    ("SO", 23),
    ("ST", 25),
    ("SV", 28),
    ("TL", 23),
    ("TN", 24),
    ("TR", 26),
    ("UA", 29),
    ("VA", 22),
    ("VG", 24),
    ("XK", 20),
    ("YE", 30),
];

/// Reports every IBAN in the text.
pub(super) fn find(view: View, found: &mut Vec<Finding>) {
    let mut previous = 0_u8;
    for (start, byte) in view.bytes().iter().copied().enumerate() {
        let fresh = byte.is_ascii_alphabetic() && !previous.is_ascii_alphanumeric();
        previous = byte;
        if !fresh || !view.at(start + 1).is_ascii_alphabetic() {
            continue;
        }
        if let Some(end) = iban(view, start).filter(|end| !view.word_after(*end)) {
            let capitals = byte.is_ascii_uppercase();
            let confidence = if capitals { CAPITALS } else { SMALL };
            found.push(Finding {
                kind: Kind::IbanCode,
                range: start..end,
                confidence,
            });
        }
    }
}

/// Where the IBAN that starts at `start` ends; `None` when there is none.
fn iban(view: View, start: usize) -> Option<usize> {
    // `GB 29` and `GB-29`: some write a separator after the country as well.
    let check = start + 2 + usize::from(matches!(view.at(start + 2), b' ' | b'-' | b'\t'));
    if !view.at(check).is_ascii_digit() || !view.at(check + 1).is_ascii_digit() {
        return None;
    }
    let country = view.slice(start..start + 2);
    let (_, length) = LENGTHS
        .iter()
        .find(|(code, _)| code.eq_ignore_ascii_case(country))?;
    let mut end = start;
    let mut rearranged = 0_u32;
    let mut head = [0_u8; 4];
    for place in 0..*length {
        if place > 0 {
            end = separator(view, end);
        }
        let letter = view.at(end).to_ascii_uppercase();
        end += 1;
        match head.get_mut(place) {
            Some(slot) => *slot = letter,
            None => rearranged = mod_97(rearranged, letter)?,
        }
    }
    let remainder = head
        .iter()
        .try_fold(rearranged, |sum, letter| mod_97(sum, *letter))?;
    (remainder == 1).then_some(end)
}

/// Where the separator at `at` ends, if there is one. Copied tables have tabs between the groups,
/// wrapped text has line breaks.
fn separator(view: View, at: usize) -> usize {
    match view.at(at) {
        b'\r' if view.at(at + 1) == b'\n' => at + 2,
        b' ' | b'-' | b'.' | b'\t' | b'\n' | b'\r' => at + 1,
        _ => at,
    }
}

/// Appends one character (a letter counts 10 to 35) to a number that is kept modulo 97.
fn mod_97(so_far: u32, letter: u8) -> Option<u32> {
    let value = char::from(letter).to_digit(36)?;
    let shift = if value < 10 { 10 } else { 100 };
    Some((so_far * shift + value) % 97)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_examples_are_found_and_a_changed_digit_is_not() {
        let all = |text: &str| {
            let mut found = Vec::new();
            find(View::new(text), &mut found);
            found
                .into_iter()
                .map(|finding| text.get(finding.range).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            all("to DE89 3704 0044 0532 0130 00 please"),
            ["DE89 3704 0044 0532 0130 00"]
        );
        assert_eq!(all("gb82west12345698765432."), ["gb82west12345698765432"]);
        assert_eq!(all("NO9386011117947"), ["NO9386011117947"]);
        assert!(all("DE89 3704 0044 0532 0130 01").is_empty());
        assert!(all("XDE89370400440532013000 DE893704004405320130009").is_empty());
    }
}
