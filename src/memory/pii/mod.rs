//! Finds and redacts personal data and secrets in free text, before the text is hashed, embedded
//! and stored: [`find`] reports what is there with a confidence, [`redact`] replaces what is
//! likely enough by a placeholder such as `[EMAIL_ADDRESS]`.
//!
//! Everything works on byte ranges of the text as given. Time is linear in the text, whatever
//! the text is.

mod context;
mod digits;
mod email;
mod fold;
mod iban;
mod keyed;
mod marks;
mod network;
mod numbers;
mod phone;
mod secrets;
mod text;
mod units;
mod words;
#[cfg(test)]
mod fakes;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub(crate) use fold::is_invisible;

use fold::Folded;
use text::View;

/// The confidence from which a finding is redacted unless the caller says otherwise.
pub const DEFAULT_THRESHOLD: f32 = 0.70;
/// Findings below this are not reported: they are guesses.
const LEAST_CONFIDENCE: f32 = 0.30;
/// How often a redacted text is looked at again. Each redaction moves words closer together,
/// which can raise what was doubtful before; texts that need more than two rounds are contrived.
const MOST_ROUNDS: usize = 8;

/// A kind of personal data or secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An e-mail address.
    EmailAddress,
    /// A phone number, international or in a national format.
    PhoneNumber,
    /// A payment card number with a valid check digit.
    CreditCard,
    /// An international bank account number with valid check digits.
    IbanCode,
    /// A US social security number.
    UsSsn,
    /// A globally routed IPv4 or IPv6 address. Private, loopback, link-local, documentation and
    /// other special-purpose addresses are none.
    IpAddress,
    /// An API key, access token, private key or password.
    ApiKey,
    /// `user:password` in a URL, or the secret in the query of a signed URL.
    UrlCredentials,
}

impl Kind {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 8] = [
        Self::EmailAddress,
        Self::PhoneNumber,
        Self::CreditCard,
        Self::IbanCode,
        Self::UsSsn,
        Self::IpAddress,
        Self::ApiKey,
        Self::UrlCredentials,
    ];

    /// What stands in a redacted text in place of a finding of this kind.
    #[must_use]
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::EmailAddress => "[EMAIL_ADDRESS]",
            Self::PhoneNumber => "[PHONE_NUMBER]",
            Self::CreditCard => "[CREDIT_CARD]",
            Self::IbanCode => "[IBAN_CODE]",
            Self::UsSsn => "[US_SSN]",
            Self::IpAddress => "[IP_ADDRESS]",
            Self::ApiKey => "[API_KEY]",
            Self::UrlCredentials => "[URL_CREDENTIALS]",
        }
    }

    /// The label of this kind in configuration and metrics, in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EmailAddress => "email_address",
            Self::PhoneNumber => "phone_number",
            Self::CreditCard => "credit_card",
            Self::IbanCode => "iban_code",
            Self::UsSsn => "us_ssn",
            Self::IpAddress => "ip_address",
            Self::ApiKey => "api_key",
            Self::UrlCredentials => "url_credentials",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSet(u8);

impl KindSet {
    /// Every kind.
    pub const ALL: Self = Self(u8::MAX);
    /// No kind.
    pub const NONE: Self = Self(0);

    /// The set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | kind.bit())
    }

    /// The set with `kind` taken out.
    #[must_use]
    pub const fn without(self, kind: Kind) -> Self {
        Self(self.0 & !kind.bit())
    }

    /// Whether `kind` is in the set.
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }
}

impl Default for KindSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Something found in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Where it is: bytes of the text, on character boundaries.
    pub range: Range<usize>,
    /// How likely it is what it looks like, 0 to 1, after checksums and the words around it.
    pub confidence: f32,
}

impl Finding {
    fn overlaps(&self, other: &Self) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// A text with its findings redacted.
#[derive(Clone, Debug, PartialEq)]
pub struct Redacted<'a> {
    /// The text with a placeholder for each finding in `redacted`; borrowed when there is none.
    pub text: Cow<'a, str>,
    /// The findings that were replaced, in order; ranges refer to the text as given.
    pub redacted: Vec<Finding>,
    /// The findings below the threshold, left as they were, in order; ranges refer to the text
    /// as given.
    pub below: Vec<Finding>,
}

/// Finds personal data and secrets of every kind, in order and without overlaps: of two that
/// overlap the one with the higher confidence stays, then the longer, then the earlier.
#[must_use]
pub fn find(text: &str) -> Vec<Finding> {
    find_kinds(text, KindSet::ALL)
}

/// Replaces the findings of the given kinds that have at least the confidence `threshold` (0 to
/// 1). Redacting the result again changes nothing.
#[must_use]
pub fn redact(text: &str, threshold: f32, kinds: KindSet) -> Redacted<'_> {
    let (mut redacted, mut below): (Vec<_>, Vec<_>) = find_kinds(text, kinds)
        .into_iter()
        .partition(|finding| finding.confidence >= threshold);
    if redacted.is_empty() {
        return Redacted {
            text: Cow::Borrowed(text),
            redacted,
            below,
        };
    }
    let mut output = replace(text, &redacted);
    for _ in 1..MOST_ROUNDS {
        let more: Vec<Finding> = find_kinds(&output, kinds)
            .into_iter()
            .filter(|finding| finding.confidence >= threshold)
            .filter_map(|finding| in_original(&redacted, &finding))
            .collect();
        if more.is_empty() {
            break;
        }
        redacted.extend(more);
        redacted.sort_by_key(|finding| finding.range.start);
        output = replace(text, &redacted);
    }
    below.retain(|low| !redacted.iter().any(|finding| finding.overlaps(low)));
    Redacted {
        text: Cow::Owned(output),
        redacted,
        below,
    }
}

/// The text with placeholders for `findings`, which are in order and do not overlap.
fn replace(text: &str, findings: &[Finding]) -> String {
    let mut output = String::with_capacity(text.len());
    let mut kept = 0;
    for finding in findings {
        output.push_str(text.get(kept..finding.range.start).unwrap_or(""));
        output.push_str(finding.kind.placeholder());
        kept = finding.range.end;
    }
    output.push_str(text.get(kept..).unwrap_or(""));
    output
}

/// Moves a finding in a redacted text to where it is in the original; `None` when it touches a
/// placeholder.
fn in_original(redacted: &[Finding], finding: &Finding) -> Option<Finding> {
    let (mut start, mut end) = (finding.range.start, finding.range.end);
    for replaced in redacted {
        let placeholder = replaced.kind.placeholder().len();
        if start >= replaced.range.start + placeholder {
            start = start + replaced.range.len() - placeholder;
            end = end + replaced.range.len() - placeholder;
        } else if end > replaced.range.start {
            return None;
        }
    }
    Some(Finding {
        range: start..end,
        ..*finding
    })
}

/// As [`find`], for some kinds only: the others do not take part in resolving overlaps.
fn find_kinds(text: &str, kinds: KindSet) -> Vec<Finding> {
    let folded = Folded::new(text);
    let mut found = candidates(View::new(folded.text()));
    found.retain(|finding| kinds.contains(finding.kind) && finding.confidence >= LEAST_CONFIDENCE);
    let mut found = resolve(found);
    for finding in &mut found {
        finding.range = folded.original_range(finding.range.clone());
    }
    found
}

/// Everything the detectors report, overlaps included.
fn candidates(view: View) -> Vec<Finding> {
    let mut found = Vec::new();
    let hits = marks::read(view, &mut found);
    let digits = view
        .bytes()
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .count();
    let count = |wanted: u8| view.bytes().iter().filter(|byte| **byte == wanted).count();
    if digits >= 4 && count(b'.') >= 3 {
        network::v4(view, &hits, &mut found);
    }
    if count(b':') >= 2 {
        network::v6(view, &hits, &mut found);
    }
    if digits >= 7 {
        iban::find(view, &mut found);
        let groups = numbers::groups(view);
        numbers::windows(view, &groups, |window| {
            digits::card(window, &hits, &mut found);
            if !window.broken {
                digits::ssn(window, &hits, &mut found);
                phone::phone(window, &hits, &mut found);
            }
        });
    }
    email::find(view, &hits, &mut found);
    found
}

/// Keeps of overlapping findings the one with the higher confidence, then the longer, then the
/// earlier, and puts the rest in order.
fn resolve(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by(|one, other| {
        let confidence = other
            .confidence
            .partial_cmp(&one.confidence)
            .unwrap_or(Ordering::Equal);
        let length = other.range.len().cmp(&one.range.len());
        confidence
            .then(length)
            .then(one.range.start.cmp(&other.range.start))
    });
    let mut kept: std::collections::BTreeMap<usize, Finding> = std::collections::BTreeMap::new();
    for finding in found {
        // The kept ones do not overlap, so only the last that starts before the end can.
        let free = kept
            .range(..finding.range.end)
            .next_back()
            .is_none_or(|(_, neighbour)| neighbour.range.end <= finding.range.start);
        if free && !finding.range.is_empty() {
            kept.insert(finding.range.start, finding);
        }
    }
    kept.into_values().collect()
}
