//! Phone numbers: E.164 with country code and length, and the national formats of some thirty
//! countries by how their digits are grouped. Formats that other numbers share start low and need
//! a word nearby. Numbering plans as published by the ITU and the national regulators.

use std::sync::LazyLock;

use super::Finding;
use super::Kind;
use super::context::{self, Hit};
use super::digits::push;
use super::numbers::{Gap, Group, MOST_GROUPS, Window};
use super::units::{self, Amount};

/// `+` with a country code and a length that country has.
const INTERNATIONAL: f32 = 0.90;
/// `00` with the same and with separators.
const DIALLED_OUT: f32 = 0.74;
/// `00` without separators.
const DIALLED_OUT_BARE: f32 = 0.45;
/// Formats below this are digits like any others, and a word nearby has to be about a phone.
const FORMED: f32 = 0.60;
/// No known grouping, accepted with a word nearby only.
const UNKNOWN_GROUPING: f32 = 0.32;
/// What a number loses when other digits stand one space away.
const CROWDED: f32 = 0.20;
/// What the national part of an international number loses against the whole.
const INSIDE: f32 = 0.30;

/// Country codes with the shortest and longest national number.
#[rustfmt::skip] // Many countries to a line.
static COUNTRIES: &[(&str, usize, usize)] = &[
    ("1", 10, 10), ("7", 10, 10), ("20", 8, 10), ("27", 9, 9), ("30", 10, 10), ("31", 9, 9), ("32", 8, 9),
    ("33", 9, 9), ("34", 9, 9), ("36", 8, 9), ("39", 8, 11), ("40", 9, 9), ("41", 9, 9), ("43", 7, 12),
    ("44", 9, 10), ("45", 8, 8), ("46", 7, 10), ("47", 8, 8), ("48", 9, 9), ("49", 7, 12), ("51", 8, 9),
    ("52", 10, 11), ("54", 10, 11), ("55", 10, 11), ("56", 9, 9), ("57", 8, 10), ("58", 10, 10), ("60", 8, 10),
    ("61", 9, 9), ("62", 8, 12), ("63", 9, 10), ("64", 8, 10), ("65", 8, 8), ("66", 8, 9), ("81", 9, 10),
    ("82", 8, 10), ("84", 9, 10), ("86", 10, 11), ("90", 10, 10), ("91", 10, 10), ("92", 9, 10), ("94", 9, 9),
    ("98", 10, 10), ("21", 9, 10), ("22", 7, 11), ("23", 7, 11), ("24", 7, 11), ("25", 7, 11), ("26", 7, 11),
    ("29", 7, 9), ("35", 7, 11), ("37", 6, 10), ("38", 7, 11), ("42", 8, 11), ("50", 7, 10), ("59", 7, 10),
    ("85", 8, 10), ("88", 8, 11), ("96", 8, 11), ("97", 8, 11), ("99", 8, 11),
];

/// A national format: how the digits are grouped (`3-4` three digits, a dash, four; `(3)` in
/// parentheses; `~` space, dash or dot, the same throughout), how they start (`N` stands for a
/// North American area code and exchange), and the confidence without any word nearby.
type Format = (&'static str, &'static [&'static str], f32);

#[rustfmt::skip] // Several formats of a country to a line.
static FORMATS: &[Format] = &[
    // United States, Canada.
    ("(3) 3-4", &["N"], 0.88), ("(3)3-4", &["N"], 0.88), ("(3) 3 4", &["N"], 0.85), ("(3) 3.4", &["N"], 0.85),
    ("(3) 3-4", &["2", "3", "4", "5", "6", "7", "8", "9"], 0.82), ("(3)3-4", &["2", "3", "4", "5", "6", "7", "8", "9"], 0.82),
    ("3-3-4", &["2", "3", "4", "5", "6", "7", "8", "9"], 0.74), ("3.3.4", &["2", "3", "4", "5", "6", "7", "8", "9"], 0.55), ("1-3-3-4", &["1"], 0.74),
    ("(3)-3-4", &["N"], 0.86), ("3-3-4", &["N"], 0.80), ("3.3.4", &["N"], 0.76), ("3 3 4", &["N"], 0.62),
    ("3 3-4", &["N"], 0.76), ("3/3-4", &["N"], 0.76), ("1-3-3-4", &["1N"], 0.84), ("1.3.3.4", &["1N"], 0.74),
    ("1 3 3 4", &["1N"], 0.72), ("1 (3) 3-4", &["1N"], 0.90), ("1(3)3-4", &["1N"], 0.88), ("1-(3)-3-4", &["1N"], 0.88),
    ("1 3-3-4", &["1N"], 0.86), ("3-4", &["2", "3", "4", "5", "6", "7", "8", "9"], 0.34), ("10", &["N"], 0.35),
    ("11", &["1N"], 0.34),
    // United Kingdom, Ireland.
    ("3~4~4", &["020", "023", "024", "028", "029", "03"], 0.78), ("5~6", &["01", "07"], 0.78), ("4~3~4", &["01", "03", "08"], 0.78),
    ("5~3~3", &["01", "07"], 0.77), ("4~3~3", &["0800", "0845", "01"], 0.76), ("4~6", &["0800"], 0.74), ("3 8", &["020"], 0.74),
    ("(3) 4 4", &["0"], 0.88), ("(4) 3 4", &["0"], 0.88), ("(5) 6", &["0"], 0.88), ("11", &["07", "020"], 0.38), ("3 3 4", &["08"], 0.74),
    ("4~7", &["079", "078", "077", "075", "074"], 0.72),
    // Germany, Austria.
    ("4~7", &["015", "016", "017"], 0.78), ("4~8", &["015", "016", "017"], 0.78), ("4/7", &["0"], 0.80), ("4/8", &["0"], 0.80),
    ("3/7", &["0"], 0.80), ("3/8", &["0"], 0.80), ("4/6", &["0"], 0.78), ("5/5", &["0"], 0.76), ("5/6", &["0"], 0.78), ("3/6", &["0"], 0.74),
    ("3 7", &["030", "040", "069", "089"], 0.70), ("3 8", &["030", "040", "069", "089"], 0.74), ("4 3 4", &["015", "016", "017", "0664", "0676", "0699"], 0.76),
    ("4 7", &["0664", "0676", "0699"], 0.74), ("4 2 2 3", &["01"], 0.76), ("4 3 2 2", &["0"], 0.78), ("3/3 4", &["0"], 0.78), ("3/4 4", &["0"], 0.78),
    ("4 4 4", &["015"], 0.74), ("5 7", &["015"], 0.74), ("11", &["015", "016", "017"], 0.38), ("12", &["015"], 0.36), ("3 2 2 2 2", &["0"], 0.76),
    ("4 2 2 2 2", &["0"], 0.76), ("3 3 2 3", &["0"], 0.74),
    // France, Belgium, Luxembourg.
    ("2~2~2~2~2", &["01", "02", "03", "04", "05", "06", "07", "08", "09"], 0.85), ("10", &["06", "07"], 0.36),
    ("10", &["01", "02", "03", "04", "05", "09"], 0.33), ("4 2 2 2", &["04"], 0.80), ("4/2.2.2", &["04"], 0.84), ("4/2 2 2", &["04"], 0.84),
    ("2 3 2 2", &["02", "03", "04", "09"], 0.76), ("3 2 2 2", &["0"], 0.76), ("3/2.2.2", &["0"], 0.82),
    // Switzerland, Sweden.
    ("3~3~2~2", &["0"], 0.82), ("3/3 2 2", &["0"], 0.84), ("4 3 3", &["0800", "0848"], 0.78), ("3-3 2 2", &["0"], 0.84), ("2-3 3 2", &["08"], 0.80),
    // Spain, Portugal, Poland.
    ("3 3 3", &["6", "7", "9"], 0.55), ("3-3-3", &["6", "7", "9"], 0.64), ("3.3.3", &["6", "9"], 0.45), ("3 2 2 2", &["6", "7", "9"], 0.76),
    ("2 3 2 2", &["91", "93"], 0.72), ("9", &["6", "7", "9"], 0.33),
    ("3 3 3", &["45", "50", "51", "53", "57", "88"], 0.45),
    // Italy.
    ("3~3~4", &["32", "33", "34", "36", "38", "39"], 0.66), ("3~7", &["32", "33", "34", "36", "38", "39"], 0.66), ("2~8", &["02", "06"], 0.74),
    ("2~4~4", &["02", "06"], 0.76), ("3/7", &["3"], 0.76), ("2/8", &["0"], 0.78), ("3~3~3", &["0"], 0.66),
    // Netherlands.
    ("2-8", &["06"], 0.80), ("3-7", &["0"], 0.76), ("3 7", &["0"], 0.64), ("4-6", &["0"], 0.74), ("3 3 4", &["0"], 0.76), ("2 4 4", &["06"], 0.76),
    ("3-3 4", &["0"], 0.80), ("2-4 4", &["06"], 0.80), ("2-2 2 2 2", &["06"], 0.84),
    // India.
    ("5~5", &["6", "7", "8", "9"], 0.70), ("6~5", &["0"], 0.72), ("3~8", &["011", "022", "033", "040", "044", "080"], 0.76), ("10", &["6", "7", "8", "9"], 0.34),
    ("4~3~3", &["6", "7", "8", "9"], 0.50), ("11", &["06", "07", "08", "09"], 0.34), ("3-4 4", &["011", "022", "033", "044", "080"], 0.80),
    // Japan, Korea.
    ("2-4-4", &["03", "06"], 0.84), ("(2) 4-4", &["0"], 0.88), ("(2)4-4", &["0"], 0.88), ("3-3-4", &["0"], 0.78), ("4-2-4", &["0"], 0.82),
    ("3~4~4", &["090", "080", "070", "050", "010", "011"], 0.80), ("4~3~3", &["0120", "0"], 0.78), ("11", &["090", "080", "070", "010"], 0.40),
    ("2-3-4", &["02"], 0.78),
    // China.
    ("3~4~4", &["13", "14", "15", "16", "17", "18", "19"], 0.78), ("3-8", &["010", "02"], 0.78), ("4-7", &["0"], 0.78), ("4-8", &["0"], 0.80),
    ("11", &["13", "14", "15", "16", "17", "18", "19"], 0.46), ("3-3-4", &["400", "800"], 0.76),
    // Brazil.
    ("(2) 5-4", &[""], 0.92), ("(2)5-4", &[""], 0.92), ("(2) 4-4", &[""], 0.88), ("(2)4-4", &[""], 0.88), ("(2) 1 4-4", &[""], 0.90),
    ("(2) 5 4", &[""], 0.84), ("2 5-4", &[""], 0.82), ("(3) 5-4", &["0"], 0.90), ("2 4-4", &[""], 0.72), ("2-5-4", &[""], 0.74), ("5-4", &["9"], 0.50),
    ("(2) 9", &[""], 0.74), ("(2) 8", &["02", "03", "07", "08"], 0.80),
    // Australia, New Zealand.
    ("4~3~3", &["04", "1300", "1800"], 0.80), ("(2) 4 4", &["0"], 0.88), ("2 4 4", &["02", "03", "07", "08"], 0.76), ("10", &["04"], 0.36),
    ("3 3 3", &["02"], 0.70), ("2-3 4", &["0"], 0.74), ("2 3 4", &["0"], 0.70),
    // Russia, Türkiye, Israel.
    ("1 (3) 3-2-2", &["8"], 0.92), ("1(3)3-2-2", &["8"], 0.92), ("1-3-3-2-2", &["8"], 0.86), ("1 3 3-2-2", &["8"], 0.86), ("(3) 3-2-2", &[""], 0.86),
    ("1 3 3 2 2", &["8"], 0.80), ("(4) 3 2 2", &["0"], 0.90), ("11", &["05"], 0.36),
    // Mexico, Denmark, Norway, Singapore, Hong Kong: need a word.
    ("2 4 4", &["33", "55", "81"], 0.50), ("2 2 2 2", &[""], 0.33), ("3 2 3", &["4", "9"], 0.33), ("4 4", &["2", "3", "5", "6", "8", "9"], 0.33),
];

/// The formats by packed grouping, sorted.
static BY_SHAPE: LazyLock<Vec<(u64, &'static Format)>> = LazyLock::new(|| {
    let mut formats: Vec<_> = FORMATS
        .iter()
        .flat_map(|format| [' ', '-', '.'].map(|gap| (pack_pattern(format.0, gap), format)))
        .collect();
    formats.sort_by_key(|(shape, _)| *shape);
    formats.dedup_by(|one, other| one.0 == other.0 && std::ptr::eq(one.1, other.1));
    formats
});

/// Packs one group into a byte: gap before it, parentheses, number of digits.
fn pack_group(so_far: u64, gap: Gap, wrapped: bool, digits: usize) -> u64 {
    let gap = match gap {
        Gap::Start => 0,
        Gap::Space => 1,
        Gap::Dash => 2,
        Gap::Dot => 3,
        Gap::Slash => 4,
        Gap::Joined => 5,
        // `415 - 555 - 0132` is read as if it had no spaces.
        Gap::Wide => 2,
        // No format goes over it.
        Gap::Break => 6,
    };
    let digits = u64::try_from(digits.min(15)).unwrap_or(15);
    (so_far << 8) | (gap << 5) | (u64::from(wrapped) << 4) | digits
}

/// Packs a grouping as written in [`FORMATS`].
fn pack_pattern(pattern: &str, any_gap: char) -> u64 {
    let (mut packed, mut gap, mut wrapped, mut digits) = (0, Gap::Start, false, 0);
    for letter in pattern.chars().chain(['$']) {
        let next = match if letter == '~' { any_gap } else { letter } {
            '(' => {
                wrapped = true;
                continue;
            }
            ')' => Gap::Joined,
            ' ' => Gap::Space,
            '-' => Gap::Dash,
            '.' => Gap::Dot,
            '/' => Gap::Slash,
            '$' => Gap::Start,
            digit => {
                digits =
                    digits * 10 + usize::try_from(digit.to_digit(10).unwrap_or(0)).unwrap_or(0);
                continue;
            }
        };
        if digits > 0 {
            packed = pack_group(packed, gap, wrapped, digits);
            (wrapped, digits) = (false, 0);
        }
        gap = next;
    }
    packed
}

/// Packs the grouping of a window; `None` for more groups than any format has.
fn pack_window(groups: &[Group]) -> Option<u64> {
    if groups.len() > MOST_GROUPS {
        return None;
    }
    Some(groups.iter().enumerate().fold(0, |packed, (place, group)| {
        let gap = if place == 0 { Gap::Start } else { group.gap };
        pack_group(packed, gap, group.wrapped(), group.len())
    }))
}

/// Reports the window as a phone number if it looks like one.
pub(super) fn phone(window: &Window, hits: &[Hit], found: &mut Vec<Finding>) {
    let digits = window.digits.text();
    let plus = window.groups.first().is_some_and(|group| group.plus);
    let known = if plus {
        international(window.groups, digits, 0)
    } else {
        best(
            national(window.groups, digits),
            dialled_out(window.groups, digits),
        )
    };
    let measured = window.amount == Amount::Measured && (window.plain() || window.range());
    if !plus && (measured || amount(window, hits)) {
        return;
    }
    let confidence = match known {
        Some(confidence) => confidence,
        None if !plus && unknown_grouping(window, digits, hits) => UNKNOWN_GROUPING,
        None => return,
    };
    let topic = topic(window, hits, confidence);
    let counted = window.amount == Amount::Counted && window.plain();
    if counted && topic & context::LOOSE != 0 {
        return;
    }
    let crowded = if window.crowded && !plus {
        CROWDED
    } else {
        0.0
    };
    let inside = if window.inside_plus { INSIDE } else { 0.0 };
    push(
        window,
        Kind::PhoneNumber,
        confidence - crowded - inside,
        hits,
        topic,
        found,
    );
}

/// Which words count for a form of this confidence.
fn topic(window: &Window, hits: &[Hit], confidence: f32) -> context::Topic {
    let announced = || context::said(hits, window.start(), window.end(), context::ANNOUNCED);
    if confidence >= FORMED || announced() {
        context::PHONE
    } else {
        context::PHONE | context::LOOSE
    }
}

fn best(one: Option<f32>, other: Option<f32>) -> Option<f32> {
    one.into_iter().chain(other).reduce(f32::max)
}

/// The confidence of the best national format the window has.
fn national(groups: &[Group], digits: &str) -> Option<f32> {
    let shape = pack_window(groups)?;
    let first = BY_SHAPE.partition_point(|(known, _)| *known < shape);
    let listed = BY_SHAPE
        .iter()
        .skip(first)
        .take_while(|(known, _)| *known == shape)
        .filter(|(_, (_, starts, _))| starts.iter().any(|start| begins(digits, start)))
        .map(|(_, (_, _, confidence))| *confidence)
        .reduce(f32::max);
    listed.or_else(|| trunk(groups, digits))
}

/// Whether the digits start as a format wants.
fn begins(digits: &str, start: &str) -> bool {
    match start {
        "N" => north_american(digits),
        "1N" => digits.strip_prefix('1').is_some_and(north_american),
        _ => digits.starts_with(start),
    }
}

/// Area code and exchange start with 2 to 9, and neither is a service code such as 911.
fn north_american(digits: &str) -> bool {
    let part = |from: usize| digits.get(from..from + 3).unwrap_or("0");
    let assigned = |code: &str| !code.starts_with(['0', '1']) && !code.ends_with("11");
    assigned(part(0)) && !part(3).starts_with(['0', '1'])
}

/// Any number with a trunk zero, an area code and evenly separated rest.
fn trunk(groups: &[Group], digits: &str) -> Option<f32> {
    let (area, rest) = groups.split_first()?;
    let fits = digits.starts_with('0')
        && !digits.starts_with("00")
        && (2..=5).contains(&area.len())
        && (9..=12).contains(&digits.len())
        && (1..=5).contains(&rest.len())
        && rest.iter().all(|group| group.len() >= 2 && !group.open);
    let even = rest
        .iter()
        .skip(2)
        .all(|group| Some(group.gap) == rest.get(1).map(|second| second.gap));
    if !fits || !even {
        return None;
    }
    match rest.first().map(|group| group.gap) {
        _ if area.wrapped() => Some(0.84),
        Some(Gap::Slash | Gap::Wide) => Some(0.76),
        Some(Gap::Dot) => Some(0.45),
        // Three groups and more of a full-length number are hardly anything else.
        Some(Gap::Space | Gap::Dash)
            if rest.len() >= 2
                && digits.len() >= 10
                && rest.iter().any(|group| group.len() >= 3) =>
        {
            Some(0.73)
        }
        _ => Some(0.62),
    }
}

/// The confidence that the digits after `skip` are a country code and as many more as that
/// country uses.
fn international(groups: &[Group], digits: &str, skip: usize) -> Option<f32> {
    // `+44 (0)20`: the trunk zero is shown but not dialled.
    let zero = groups
        .iter()
        .skip(1)
        .position(|group| group.wrapped() && group.len() == 1);
    let zero = zero.map_or(0, |place| {
        groups.iter().take(place + 1).map(Group::len).sum()
    });
    let total = digits.len() - skip - usize::from(zero > 0);
    let rest = digits.get(skip..)?;
    COUNTRIES
        .iter()
        .filter(|(code, _, _)| rest.starts_with(code))
        .find_map(|(code, least, most)| {
            let area = rest.get(code.len()..).unwrap_or("");
            let national = total - code.len().min(total);
            let unassigned = *code == "1" && !north_american(area);
            let confidence = match (unassigned, groups.len()) {
                (false, _) => INTERNATIONAL,
                (true, 1) => DIALLED_OUT_BARE,
                (true, _) => DIALLED_OUT,
            };
            (*least..=*most).contains(&national).then_some(confidence)
        })
}

/// An international number dialled with `00`.
fn dialled_out(groups: &[Group], digits: &str) -> Option<f32> {
    if !digits.starts_with("00") {
        return None;
    }
    let written = if groups.len() > 1 {
        DIALLED_OUT
    } else {
        DIALLED_OUT_BARE
    };
    international(groups, digits, 2).map(|_| written)
}

/// Whether a window in no known grouping may still be a phone number: it stands alone, is no
/// date, and a word nearby says so.
fn unknown_grouping(window: &Window, digits: &str, hits: &[Hit]) -> bool {
    let lengths = || window.groups.iter().map(Group::len);
    let spelled = lengths().all(|length| length == 1);
    let trunk = digits.starts_with('0') && digits.len() >= 9;
    let grouped = window.groups.len() <= 6 && (trunk || lengths().any(|length| length >= 3));
    let dotted = window.groups.len() < 3 && window.groups.iter().any(|group| group.gap == Gap::Dot);
    (7..=13).contains(&digits.len())
        && (spelled || grouped)
        && !dotted
        && !window.crowded
        && !digits.ends_with("0000")
        && !units::dated(window.groups, digits)
        && context::supported(
            hits,
            window.start(),
            window.end(),
            topic(window, hits, UNKNOWN_GROUPING),
        )
}

/// Whether the groups are numbers of their own, or one in groups of thousands.
fn amount(window: &Window, hits: &[Hit]) -> bool {
    let digits = window.digits.text();
    let Some((first, rest)) = window.groups.split_first() else {
        return false;
    };
    if rest.is_empty() || digits.starts_with('0') || window.groups.iter().any(Group::wrapped) {
        return false;
    }
    if window.groups.iter().all(|group| group.len() == 4) {
        return units::several(digits);
    }
    let thousands =
        rest.len() >= 2 && first.len() <= 3 && rest.iter().all(|group| group.len() == 3);
    let written = matches!(window.uniform_gap(), Some(Gap::Space | Gap::Dot));
    // Nine digits in threes are a number of Spain or Poland as well, by how they start.
    let national = first.len() == 3 && national(window.groups, digits).is_some();
    let (start, end) = (window.start(), window.end());
    let labelled = window.labelled && context::adjacent(hits, start, end, context::PHONE);
    thousands && written && !national && !labelled
}
