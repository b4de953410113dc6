//! One spelling for what is written in several ways: numbers, amounts, units, dates, times, spelling variants.

use std::borrow::Cow;

/// Appends the canonical words of `low`, a word in lower case: usually one, two for "30s" or "$5".
pub(super) fn push(low: &str, out: &mut Vec<String>) {
    let (low, currency) = leading_currency(low);
    if let Some(time) = clock_time(low) {
        out.push(time);
    } else if let Some((number, unit)) = number_and_unit(low) {
        out.push(number);
        out.extend(unit.map(str::to_owned));
    } else {
        out.push(word(low).into_owned());
    }
    out.extend(currency.map(str::to_owned));
}

/// The canonical form of one word that carries no digits.
pub(super) fn word(low: &str) -> Cow<'_, str> {
    if let Some(number) = number_word(low) {
        return Cow::Owned(number.to_string());
    }
    if let Some((tens, ones)) = low.split_once('-')
        && let (Some(tens @ 20..=90), Some(ones @ 1..=9)) = (number_word(tens), number_word(ones))
    {
        return Cow::Owned((tens + ones).to_string());
    }
    Cow::Borrowed(spelling(unit(low).unwrap_or(low)))
}

/// British and short spellings.
fn spelling(low: &str) -> &str {
    match low {
        "favourite" => "favorite",
        "colour" => "color",
        "e-mail" => "email",
        "db" => "database",
        "prod" => "production",
        "repo" => "repository",
        "env" => "environment",
        "app" => "application",
        "svc" => "service",
        "config" => "configuration",
        "neighbour" => "neighbor",
        "grey" => "gray",
        "centre" => "center",
        "theatre" => "theater",
        "licence" => "license",
        "mum" => "mom",
        other => other,
    }
}

/// The one name of a unit.
pub(super) fn unit(low: &str) -> Option<&'static str> {
    Some(match low {
        "s" | "sec" | "secs" | "second" | "seconds" => "second",
        "ms" | "millisecond" | "milliseconds" => "millisecond",
        "min" | "mins" | "minute" | "minutes" => "minute",
        "hr" | "hrs" | "hour" | "hours" => "hour",
        "day" | "days" => "day",
        "week" | "weeks" => "week",
        "month" | "months" => "month",
        "year" | "years" => "year",
        "kg" | "kilo" | "kilos" | "kilogram" | "kilograms" => "kg",
        "km" | "kilometer" | "kilometers" | "kilometre" | "kilometres" => "km",
        "cm" | "centimeters" | "centimetres" => "cm",
        "mb" | "megabytes" => "mb",
        "gb" | "gigabytes" => "gb",
        "tb" | "terabytes" => "tb",
        "%" | "percent" => "percent",
        "eur" | "euro" | "euros" | "\u{20ac}" => "eur",
        "usd" | "dollar" | "dollars" | "$" => "usd",
        "gbp" | "pounds" | "\u{a3}" => "gbp",
        _ => return None,
    })
}

fn leading_currency(low: &str) -> (&str, Option<&'static str>) {
    for sign in ["$", "\u{20ac}", "\u{a3}"] {
        if let Some(rest) = low.strip_prefix(sign)
            && rest.starts_with(|c: char| c.is_ascii_digit())
        {
            return (rest, unit(sign));
        }
    }
    (low, None)
}

/// "9:30" as "09:30".
fn clock_time(low: &str) -> Option<String> {
    let (hours, minutes) = low.split_once(':')?;
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let shaped =
        matches!(hours.len(), 1 | 2) && minutes.len() == 2 && digits(hours) && digits(minutes);
    shaped.then(|| format!("{hours:0>2}:{minutes}"))
}

/// "5,000" as "5000", "30s" as "30" and "second", "5k" as "5000".
fn number_and_unit(low: &str) -> Option<(String, Option<&'static str>)> {
    let end = low
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, ',' | '.')))
        .unwrap_or(low.len());
    let (digits, tail) = low.split_at_checked(end)?;
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let grouped = digits
        .split(',')
        .skip(1)
        .all(|group| group.split('.').next().is_some_and(|g| g.len() == 3));
    if !grouped {
        return None;
    }
    let number = digits.replace(',', "");
    match tail {
        "" => Some((number, None)),
        "k" if !number.contains('.') => Some((format!("{number}000"), None)),
        tail => unit(tail).map(|unit| (number, Some(unit))),
    }
}

fn number_word(low: &str) -> Option<u32> {
    Some(match low {
        "zero" => 0,
        "one" => 1,
        "two" => 2,
        "three" => 3,
        "four" => 4,
        "five" => 5,
        "six" => 6,
        "seven" => 7,
        "eight" => 8,
        "nine" => 9,
        "ten" => 10,
        "eleven" => 11,
        "twelve" => 12,
        "thirteen" => 13,
        "fourteen" => 14,
        "fifteen" => 15,
        "sixteen" => 16,
        "seventeen" => 17,
        "eighteen" => 18,
        "nineteen" => 19,
        "twenty" => 20,
        "thirty" => 30,
        "forty" => 40,
        "fifty" => 50,
        "sixty" => 60,
        "seventy" => 70,
        "eighty" => 80,
        "ninety" => 90,
        _ => return None,
    })
}

/// What part of a date or time a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// "monday".
    Weekday,
    /// "march", "2025-03-01".
    Date,
    /// "09:30".
    Time,
    /// Anything else.
    Other,
}

/// What part of a date or time a canonical word is.
pub(super) fn when(word: &str) -> When {
    let iso = word.len() == 10
        && word.bytes().filter(|b| *b == b'-').count() == 2
        && word.starts_with(|c: char| c.is_ascii_digit());
    match word {
        "monday" | "tuesday" | "wednesday" | "thursday" | "friday" | "saturday" | "sunday" => {
            When::Weekday
        }
        "january" | "february" | "march" | "april" | "may" | "june" | "july" | "august"
        | "september" | "october" | "november" | "december" => When::Date,
        _ if iso => When::Date,
        _ if clock_time(word).is_some() => When::Time,
        _ => When::Other,
    }
}

/// Whether every word is a part of a date or time, and one of them more than a bare number.
pub(super) fn is_point_in_time(words: &[String]) -> bool {
    let quarter = |w: &str| matches!(w, "q1" | "q2" | "q3" | "q4");
    let year = |w: &str| w.len() == 4 && is_number(w);
    let small = |w: &str| {
        matches!(
            w,
            "am" | "pm"
                | "utc"
                | "cet"
                | "noon"
                | "midnight"
                | "eod"
                | "morning"
                | "afternoon"
                | "evening"
        )
    };
    let part = |w: &String| when(w) != When::Other || quarter(w) || small(w) || is_number(w);
    words.iter().all(part)
        && words
            .iter()
            .any(|w| when(w) != When::Other || quarter(w) || year(w))
}

/// "15th" as "15".
pub(super) fn ordinal(word: &str) -> Option<&str> {
    let number = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|end| word.strip_suffix(end))?;
    (matches!(number.len(), 1 | 2) && is_number(number)).then_some(number)
}

/// Whether the word is a number, with or without a point.
pub(super) fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}
