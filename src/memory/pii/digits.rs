//! Payment cards (issuer ranges of ISO/IEC 7812 as published by the networks, Luhn check digit)
//! and US social security numbers (ranges published by the Social Security Administration).

use super::context::{self, Hit};
use super::numbers::{Gap, Window};
use super::units::Amount;
use super::{Finding, Kind};

/// A card number whose groups are printed the way its network prints them.
const PRINTED: f32 = 0.90;
/// A card number without separators: one in ten numbers with an issuer's prefix passes Luhn.
const BARE: f32 = 0.75;
/// A number that passes Luhn but has an unusual length or unusual groups: needs context.
const UNUSUAL: f32 = 0.45;
/// `123-45-6789`.
const SSN_DASHED: f32 = 0.74;
/// `123-45-6789 units`.
const SSN_COUNTED: f32 = 0.35;
/// `123 45 6789`.
const SSN_SPACED: f32 = 0.50;
/// Nine digits, needs context.
const SSN_BARE: f32 = 0.32;

/// Digits of the shortest card number.
const SHORTEST_CARD: usize = 13;

/// Reports the window as a card number if it is one.
pub(super) fn card(window: &Window, hits: &[Hit], found: &mut Vec<Finding>) {
    let digits = window.digits.text();
    let Some(usual_length) = issued(digits) else {
        return;
    };
    if !luhn(digits) || window.groups.iter().any(|group| group.plus) {
        return;
    }
    let Some(gap) = window.broken_gap().or(window.uniform_gap()) else {
        return;
    };
    let printed = [&[4, 4, 4, 4][..], &[4, 6, 5], &[4, 6, 4], &[4, 4, 4, 4, 3]]
        .iter()
        .any(|lengths| window.lengths_are(lengths));
    let printed = printed && matches!(gap, Gap::Space | Gap::Dash);
    let confidence = match (usual_length, printed, window.groups.len()) {
        // Columns of numbers pass Luhn now and then.
        _ if window.broken && !printed && window.groups.len() > 2 => return,
        _ if window.broken => UNUSUAL,
        (_, false, _) if window.amount == Amount::Measured => return,
        (true, true, _) => PRINTED,
        (true, false, 1) => BARE,
        _ => UNUSUAL,
    };
    push(
        window,
        Kind::CreditCard,
        confidence,
        hits,
        context::CARD,
        found,
    );
}

/// Whether an issuer has the prefix: `Some(true)` at the length its cards have today,
/// `Some(false)` at a length that is rare or at which other numbers are common.
fn issued(digits: &str) -> Option<bool> {
    let length = digits.len();
    let first = |count: usize| {
        digits
            .get(..count)
            .and_then(|text| text.parse::<u32>().ok())
    };
    let (one, two, three, four) = (first(1)?, first(2)?, first(3)?, first(4)?);
    if length < SHORTEST_CARD {
        return None;
    }
    let usual = match length {
        15 => matches!(two, 34 | 37),
        16 => {
            one == 4
                || matches!(two, 51..=55 | 60 | 62 | 65 | 81)
                || matches!(four, 2200..=2204 | 2221..=2720 | 3528..=3589)
        }
        _ => false,
    };
    let rare = (matches!(length, 13 | 19) && one == 4)
        || (length == 14 && (matches!(two, 36 | 38 | 39) || matches!(three, 300..=305)))
        || matches!(two, 50 | 56..=69);
    (usual || rare).then_some(usual)
}

/// The check digit of ISO/IEC 7812: every second digit from the right doubled.
fn luhn(digits: &str) -> bool {
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let value = u32::from(digit.wrapping_sub(b'0'));
            if place % 2 == 0 {
                value
            } else {
                value * 2 / 10 + value * 2 % 10
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Reports the window as a social security number if it is one.
pub(super) fn ssn(window: &Window, hits: &[Hit], found: &mut Vec<Finding>) {
    let digits = window.digits.text();
    if digits.len() != 9 || window.groups.iter().any(|group| group.plus || group.open) {
        return;
    }
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("");
    let (area, group, serial) = (part(0, 3), part(3, 5), part(5, 9));
    // Never issued: area 000, 666 and 900 up, group 00, serial 0000.
    if matches!(area, "000" | "666") || area.starts_with('9') || group == "00" || serial == "0000" {
        return;
    }
    let split = window.lengths_are(&[3, 2, 4]);
    let confidence = match (split, window.uniform_gap(), window.groups.len()) {
        (true, Some(Gap::Dash), _) if window.amount != Amount::None => SSN_COUNTED,
        (true, Some(Gap::Dash), _) => SSN_DASHED,
        _ if window.amount == Amount::Measured => return,
        (true, Some(Gap::Space | Gap::Dot), _) => SSN_SPACED,
        (_, _, 1) => SSN_BARE,
        _ => return,
    };
    let announced = context::said(hits, window.start(), window.end(), context::SSN);
    let topic = if announced {
        context::SSN
    } else {
        context::SSN | context::TRADE
    };
    push(window, Kind::UsSsn, confidence, hits, topic, found);
}

/// Reports a window as `kind` after weighing its surroundings.
pub(super) fn push(
    window: &Window,
    kind: Kind,
    confidence: f32,
    hits: &[Hit],
    topic: context::Topic,
    found: &mut Vec<Finding>,
) {
    let mut finding = Finding {
        kind,
        range: window.start()..window.end(),
        confidence,
    };
    finding.confidence = context::weigh(hits, &finding, topic);
    found.push(finding);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luhn_accepts_test_numbers_and_rejects_a_changed_digit() {
        for digits in [
            "4242424242424242",
            "378282246310005",
            "5555555555554444",
            "30569309025904",
        ] {
            assert!(luhn(digits) && issued(digits).is_some(), "{digits}");
        }
        assert!(!luhn("4242424242424241"));
        assert_eq!(issued("1793540120002"), None);
    }
}
