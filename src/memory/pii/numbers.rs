//! Splits a text into groups of digits and looks at every run of neighbouring groups ("window")
//! that could be one number: the common ground of cards, phone numbers and SSNs.

use super::text::{View, is_unspaced};
use super::units::{self, Amount};

/// What stands between a group of digits and the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gap {
    /// The group starts a new run.
    Start,
    Space,
    Dash,
    Dot,
    Slash,
    /// Only a parenthesis.
    Joined,
    /// A dash or slash with spaces, or two spaces.
    Wide,
    /// A tab or the end of a line. Cells of a table and lines of a list are mostly numbers of their
    /// own, so only cards go on over it.
    Break,
}

impl Gap {
    /// Whether the groups on both sides may belong to different numbers.
    fn loose(self) -> bool {
        matches!(self, Self::Space | Self::Wide)
    }

    /// Whether the group after it belongs to another run.
    fn parts(self) -> bool {
        matches!(self, Self::Start | Self::Break)
    }
}

/// One group of digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Offset of the first digit.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) gap: Gap,
    /// A `+` stands before it (or before its opening parenthesis).
    pub(super) plus: bool,
    pub(super) open: bool,
    pub(super) closed: bool,
    /// Offset including `+` and `(`.
    lead: usize,
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn wrapped(&self) -> bool {
        self.open && self.closed
    }
}

/// The most digits a window holds: the longest card number.
pub(super) const MOST_DIGITS: usize = 19;
/// The most groups a window holds, unless it stands alone.
pub(super) const MOST_GROUPS: usize = 7;
/// The fewest digits a window holds: a local phone number.
const FEWEST_DIGITS: usize = 7;

/// The digits of a window, without what separates them.
#[derive(Clone, Copy, Default)]
pub(super) struct Digits {
    digits: [u8; MOST_DIGITS],
    len: usize,
}

impl Digits {
    pub(super) fn push(&mut self, digit: u8) {
        if let Some(slot) = self.digits.get_mut(self.len) {
            *slot = digit;
            self.len += 1;
        }
    }

    /// The digits as ASCII text.
    pub(super) fn text(&self) -> &str {
        self.digits
            .get(..self.len)
            .and_then(|digits| str::from_utf8(digits).ok())
            .unwrap_or("")
    }
}

/// Neighbouring groups that may be one number.
pub(super) struct Window<'n> {
    pub(super) groups: &'n [Group],
    pub(super) digits: Digits,
    /// Other digits stand next to it, one space away.
    pub(super) crowded: bool,
    /// Belongs to a longer run that starts with `+`.
    pub(super) inside_plus: bool,
    /// Goes over a tab or the end of a line.
    pub(super) broken: bool,
    /// A colon, an equals sign or a full stop stands before it, as after "Tel.".
    pub(super) labelled: bool,
    /// What the word after it makes of it.
    pub(super) amount: Amount,
}

impl Window<'_> {
    /// Offset where the number starts, with `+` and with a parenthesis that closes inside.
    pub(super) fn start(&self) -> usize {
        self.groups
            .first()
            .map_or(0, |group| match (group.wrapped(), group.plus) {
                (true, _) => group.lead,
                (false, true) if group.open => group.start - 1,
                (false, true) => group.lead,
                (false, false) => group.start,
            })
    }

    pub(super) fn end(&self) -> usize {
        self.groups.last().map_or(0, |group| group.end)
    }

    /// The one gap between all groups; `None` when they differ.
    pub(super) fn uniform_gap(&self) -> Option<Gap> {
        let mut gaps = self.groups.iter().skip(1).map(|group| group.gap);
        let first = gaps.next().unwrap_or(Gap::Joined);
        gaps.all(|gap| gap == first).then_some(first)
    }

    /// Whether it is written like an amount: without plus, parentheses, dashes and slashes.
    pub(super) fn plain(&self) -> bool {
        let mut gaps = self.groups.iter().skip(1).map(|group| group.gap);
        gaps.all(|gap| matches!(gap, Gap::Space | Gap::Dot))
            && !self
                .groups
                .iter()
                .any(|group| group.plus || group.wrapped())
    }

    /// Whether it is written like a range, `4000-5000`.
    pub(super) fn range(&self) -> bool {
        self.groups.len() == 2 && self.uniform_gap() == Some(Gap::Dash)
    }

    /// The one gap between all groups apart from line breaks and tabs; `None` when there are no such
    /// breaks, or the other gaps differ.
    pub(super) fn broken_gap(&self) -> Option<Gap> {
        let mut gaps = self.groups.iter().skip(1).map(|group| group.gap);
        let mut inner = gaps.clone().filter(|gap| *gap != Gap::Break);
        let first = inner.next().unwrap_or(Gap::Space);
        (inner.all(|gap| gap == first) && gaps.any(|gap| gap == Gap::Break)).then_some(first)
    }

    /// Whether the groups have these lengths.
    pub(super) fn lengths_are(&self, wanted: &[usize]) -> bool {
        self.groups.len() == wanted.len()
            && self
                .groups
                .iter()
                .zip(wanted)
                .all(|(group, length)| group.len() == *length)
    }
}

/// The groups of digits of a text.
pub(super) fn groups(view: View) -> Vec<Group> {
    let bytes = view.bytes();
    let mut groups: Vec<Group> = Vec::new();
    let mut at = 0;
    let mut gap = Gap::Start;
    while let Some(skipped) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(u8::is_ascii_digit))
    {
        let start = at + skipped;
        if skipped > 0 {
            gap = Gap::Start;
        }
        let end = view.run(start, usize::MAX, |byte| byte.is_ascii_digit());
        let (open, plus, lead) = lead(view, start);
        let (next, next_gap, closed) = separator(view, end);
        groups.push(Group {
            start,
            end,
            gap,
            plus,
            open,
            closed,
            lead,
        });
        (at, gap) = (next, next_gap);
    }
    groups
}

/// What stands directly before a group: parenthesis, plus, and where that starts.
fn lead(view: View, start: usize) -> (bool, bool, usize) {
    let mut lead = start;
    let (mut open, mut plus) = (false, false);
    for _ in 0..2 {
        match view.before(lead) {
            b'(' if !open => open = true,
            b'+' if !plus => plus = true,
            _ => break,
        }
        lead -= 1;
    }
    (open, plus, lead)
}

/// Reads what separates a group that ends at `end` from the next: where the next digit stands,
/// the gap, and whether a parenthesis closes. Without a next digit the gap is `Start`.
fn separator(view: View, end: usize) -> (usize, Gap, bool) {
    const LONGEST_SEPARATOR: usize = 4;
    let stop = view.run(end, LONGEST_SEPARATOR, |byte| {
        b" -./()\t\r\n".contains(&byte)
    });
    let closed = view.at(end) == b')';
    let none = (end, Gap::Start, closed);
    if !view.at(stop).is_ascii_digit() {
        return none;
    }
    let written = view.slice(end..stop);
    if written.contains(['\t', '\n', '\r']) {
        // A blank line, or two tabs, part more than groups of one number.
        let breaks = written
            .replace("\r\n", "\n")
            .matches(['\t', '\n', '\r'])
            .count();
        let other = written.contains(['.', '/', '(', ')']);
        return if breaks == 1 && !other {
            (stop, Gap::Break, closed)
        } else {
            none
        };
    }
    let mut marks = written.bytes().filter(|byte| !b"()".contains(byte));
    let gap = match (marks.next(), marks.next(), marks.next(), marks.next()) {
        (None, _, _, _) => Gap::Joined,
        (Some(b' '), None, _, _) => Gap::Space,
        (Some(b'-'), None, _, _) => Gap::Dash,
        (Some(b'.'), None, _, _) => Gap::Dot,
        (Some(b'/'), None, _, _) => Gap::Slash,
        (Some(b' '), Some(b' '), None, _) | (Some(b' '), Some(b'-' | b'/'), Some(b' '), None) => {
            Gap::Wide
        }
        _ => return none,
    };
    (stop, gap, closed)
}

/// Calls `see` with every window of 7 to 19 digits that is not part of something longer.
pub(super) fn windows(view: View, groups: &[Group], mut see: impl FnMut(&Window)) {
    let mut plus_run = false;
    for (first, group) in groups.iter().enumerate() {
        if group.gap.parts() {
            plus_run = group.plus;
        }
        if !starts(view, group) {
            continue;
        }
        let labelled = matches!(
            view.slice(0..group.lead).trim_end().bytes().next_back(),
            Some(b':' | b'=' | b'.')
        );
        let mut digits = Digits::default();
        let mut broken = false;
        for (last, member) in groups.iter().enumerate().skip(first) {
            let belongs = last == first || member.gap != Gap::Start;
            if !belongs || digits.len + member.len() > MOST_DIGITS {
                break;
            }
            broken |= last > first && member.gap == Gap::Break;
            view.slice(member.start..member.end)
                .bytes()
                .for_each(|digit| digits.push(digit));
            if digits.len < FEWEST_DIGITS {
                continue;
            }
            let next = groups.get(last + 1).filter(|next| !next.gap.parts());
            let ends = next.map_or_else(|| ends(view, member), |next| next.gap.loose());
            let crowded = !group.gap.parts() || next.is_some();
            let long = (crowded || broken) && last - first >= MOST_GROUPS;
            if !ends || long {
                continue;
            }
            see(&Window {
                groups: groups.get(first..=last).unwrap_or(&[]),
                digits,
                crowded,
                inside_plus: plus_run && !group.gap.parts(),
                broken,
                labelled,
                amount: if next.is_none() {
                    units::amount(view, member.end)
                } else {
                    Amount::None
                },
            });
        }
    }
}

/// Whether a number can start with this group: nothing is glued to it that makes it part of a
/// code, a path, an amount or a decimal.
fn starts(view: View, group: &Group) -> bool {
    if !group.gap.parts() {
        return group.gap.loose();
    }
    let Some(before) = view.char_before(group.lead) else {
        return true;
    };
    let further = view.before(group.lead.saturating_sub(before.len_utf8()));
    match before {
        '-' => matches!(further, 0 | b' ' | b'\n' | b'\t'),
        ':' | ',' => !further.is_ascii_digit(),
        '.' => !further.is_ascii_digit() && further != b'.',
        '/' => false,
        '_' | '#' | '$' | '£' | '€' | '¥' | '₹' | '%' | '&' | '@' | '\\' | '*' | '^' | '~'
        | '≈' => false,
        // An escaped line break in quoted text.
        'n' | 't' | 'r' => further == b'\\',
        _ => !before.is_alphanumeric() || is_unspaced(before) || label(view, group.lead),
    }
}

/// Whether a label is glued to the number that starts at `start`: `Tel0171…`, `SSN219-…`.
fn label(view: View, start: usize) -> bool {
    ["ssn", "tel", "phone", "mobile", "fax", "card", "visa"]
        .iter()
        .filter_map(|label| Some((label, start.checked_sub(label.len())?)))
        .any(|(label, first)| view.has(first, label) && !view.word_before(first))
}

/// Whether a number can end with this group, the last of its run.
fn ends(view: View, group: &Group) -> bool {
    let end = group.end;
    let Some(after) = view.char_at(end) else {
        return true;
    };
    let further = view.at(end + after.len_utf8());
    match after {
        'x' | 'e' | 'E' | 'X' => {
            view.slice(end..view.len())
                .bytes()
                .take(5)
                .any(|byte| byte.is_ascii_digit())
                && extension(view, end)
        }
        '-' | '/' => !further.is_ascii_alphanumeric(),
        '.' => !further.is_ascii_digit() && !further.is_ascii_lowercase(),
        ':' | ',' => !further.is_ascii_digit(),
        '_' | '@' | '%' | '€' | '$' | '£' | '¥' | '₹' | '°' | '*' | '^' | '~' => false,
        _ => !after.is_alphanumeric() || is_unspaced(after),
    }
}

/// Whether an extension (`x12`, `ext. 12`) follows directly.
fn extension(view: View, at: usize) -> bool {
    (view.has(at, "ext") || view.has(at, "x")) && !view.has(at, "extr")
}
