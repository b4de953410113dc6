//! IP addresses that point at someone, and credentials inside URLs. Private, loopback, link-local,
//! documentation and other special-purpose addresses (IANA registries) name nobody and are left.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::context::{self, Hit};
use super::secrets::jumbled;
use super::text::View;
use super::{Finding, Kind};

/// A public IPv4 address with two octets too large for most version numbers.
const ADDRESS: f32 = 0.76;
/// Four small numbers: as likely a version.
const SMALL_NUMBERS: f32 = 0.42;
/// What a port, a prefix length or a scheme adds.
const DECORATED: f32 = 0.12;
/// Octets from here on are unusual in versions.
const LARGE_OCTET: u8 = 32;
/// A global IPv6 address.
const ADDRESS_V6: f32 = 0.88;
/// `user:password@` in a URL.
const USERINFO: f32 = 0.98;
/// Bytes of a URL that are searched for its userinfo.
const LONGEST_AUTHORITY: usize = 512;

/// Resolvers everybody knows: they identify nobody.
static WELL_KNOWN: &[&str] = &[
    "8.8.8.8",
    "8.8.4.4",
    "1.1.1.1",
    "1.0.0.1",
    "9.9.9.9",
    "208.67.222.222",
    "208.67.220.220",
    "2001:4860:4860::8888",
    "2001:4860:4860::8844",
    "2606:4700:4700::1111",
    "2606:4700:4700::1001",
    "2620:fe::fe",
];

/// Reports the IPv4 addresses of the text.
pub(super) fn v4(view: View, hits: &[Hit], found: &mut Vec<Finding>) {
    let mut at = 0;
    while let Some(dot) = view
        .bytes()
        .get(at..)
        .and_then(|rest| memchr::memchr(b'.', rest))
    {
        let dot = at + dot;
        let mut start = dot;
        while dot - start < 3 && view.before(start).is_ascii_digit() {
            start -= 1;
        }
        let end = view.run(start, usize::MAX, |byte| {
            byte.is_ascii_digit() || byte == b'.'
        });
        at = end.max(dot + 1);
        // A full stop may follow the address.
        let trimmed = view.slice(start..end).trim_end_matches('.');
        let end = start + trimmed.len();
        let Ok(address) = trimmed.parse::<Ipv4Addr>() else {
            continue;
        };
        if !identifying(IpAddr::V4(address)) || glued(view, start, end) {
            continue;
        }
        let large = address
            .octets()
            .iter()
            .filter(|octet| **octet >= LARGE_OCTET)
            .count()
            >= 2;
        let next = view.at(end);
        let decorated = matches!(next, b':' | b'/') && view.at(end + 1).is_ascii_digit()
            || view.slice(start.saturating_sub(3)..start) == "://";
        let confidence = if large { ADDRESS } else { SMALL_NUMBERS };
        if !large && context::doubted(hits, start, end, context::IP) {
            continue;
        }
        let extra = if decorated { DECORATED } else { 0.0 };
        push(view, start..end, confidence + extra, hits, found);
    }
}

/// Whether letters, further numbers or a path make the four numbers part of something else, such
/// as `v1.2.3.4`, `1.2.3.4-beta` or `Browser/1.2.3.4`.
fn glued(view: View, start: usize, end: usize) -> bool {
    let before = view.before(start);
    let after = view.at(end);
    let inner = start.saturating_sub(1);
    view.word_before(start)
        || view.word_after(end)
        || matches!(before, b'.' | b'-' | b'+')
        || (before == b'/' && view.before(inner).is_ascii_alphanumeric())
        || (matches!(before, b'=' | b'~' | b'^')
            && matches!(view.before(inner), b'=' | b'>' | b'<' | b'~'))
        || (matches!(after, b'-' | b'+') && view.at(end + 1).is_ascii_alphanumeric())
}

/// Reports the IPv6 addresses of the text.
pub(super) fn v6(view: View, hits: &[Hit], found: &mut Vec<Finding>) {
    /// Longest written form, with an IPv4 tail.
    const LONGEST: usize = 45;
    let mut at = 0;
    while let Some(colon) = view
        .bytes()
        .get(at..)
        .and_then(|rest| memchr::memchr(b':', rest))
    {
        let colon = at + colon;
        let mut start = colon;
        while colon - start < 4 && view.before(start).is_ascii_hexdigit() {
            start -= 1;
        }
        let end = view.run(start, LONGEST, |byte| {
            byte.is_ascii_hexdigit() || b":.".contains(&byte)
        });
        at = colon + 1;
        if colon - start < 3 || view.word_before(start) || view.before(start) == b':' {
            continue;
        }
        let trimmed = view.slice(start..end).trim_end_matches(['.', ':']);
        let written = if trimmed.len() + 2 == end - start {
            view.slice(start..end)
        } else {
            trimmed
        };
        let Ok(address) = written.parse::<Ipv6Addr>() else {
            continue;
        };
        let end = start + written.len();
        if identifying(IpAddr::V6(address)) && !view.word_after(end) {
            push(view, start..end, ADDRESS_V6, hits, found);
        }
        at = end.max(at);
    }
}

fn push(
    view: View,
    range: std::ops::Range<usize>,
    confidence: f32,
    hits: &[Hit],
    found: &mut Vec<Finding>,
) {
    if WELL_KNOWN.contains(&view.slice(range.clone())) {
        return;
    }
    let mut finding = Finding {
        kind: Kind::IpAddress,
        range,
        confidence,
    };
    finding.confidence = context::weigh(hits, &finding, context::IP);
    found.push(finding);
}

/// Whether an address can point at a person or a machine: globally routed and assigned.
fn identifying(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            let special = address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_documentation()
                || first == 0
                || first >= 224
                || (first == 100 && (64..128).contains(&second))
                || (first == 198 && (second == 18 || second == 19))
                || (first, second, third) == (192, 0, 0);
            !special
        }
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            // 2000::/3 is what is routed; 2001:db8::/32 and 3fff::/20 are for documentation.
            let documentation =
                (first == 0x2001 && second == 0xdb8) || (first == 0x3fff && second < 0x1000);
            first & 0xe000 == 0x2000 && !documentation
        }
    }
}

/// Reports `user:password@` after a `://` that ends at `start`. The host stays: it is what makes
/// the text useful and is judged on its own.
pub(super) fn userinfo(view: View, start: usize, found: &mut Vec<Finding>) {
    let ends = |byte: u8| byte <= b' ' || b"/?#\"'<>`\\|".contains(&byte);
    let stop = view.run(start, LONGEST_AUTHORITY, |byte| !ends(byte));
    let Some(at) = view
        .bytes()
        .get(start..stop)
        .and_then(|part| memchr::memrchr(b'@', part))
    else {
        return;
    };
    let info = view.slice(start..start + at);
    let (user, password) = info.split_once(':').unwrap_or((info, ""));
    // Some servers take a token as the user, with no password or an empty one.
    let credentials = if password.is_empty() {
        token(user)
    } else {
        !template(password) && (!user.is_empty() || password.len() >= 3)
    };
    if !credentials {
        return;
    }
    if Kind::ALL
        .iter()
        .any(|kind| info.contains(kind.placeholder()))
    {
        return;
    }
    found.push(Finding {
        kind: Kind::UrlCredentials,
        range: start..start + at,
        confidence: USERINFO,
    });
}

/// Whether the user of a URL is a token: too long and too mixed for the name of an account, or a
/// UUID.
fn token(user: &str) -> bool {
    const SHORTEST: usize = 20;
    const SHORTEST_PART: usize = 16;
    let mixed = |part: &str| {
        let has = |wanted: fn(&u8) -> bool| part.bytes().any(|byte| wanted(&byte));
        part.len() >= SHORTEST_PART && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
    };
    let plain = user
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let hex = user.bytes().filter(u8::is_ascii_hexdigit).count();
    let uuid = user.len() == 36 && hex == 32;
    plain && user.len() >= SHORTEST && (uuid || user.split(['-', '_']).any(mixed) || jumbled(user))
}

/// Whether a value stands for one that is filled in elsewhere: `${PASS}`, `{{pass}}`, `%s`, `***`.
pub(super) fn template(value: &str) -> bool {
    let inner = value.trim_matches(['"', '\'', '`']);
    let filler = |letter: char| matches!(letter, '*' | 'x' | 'X' | '.' | '-' | '_' | '•' | '…');
    inner.starts_with("${")
        || inner.starts_with("$(")
        || inner.starts_with("{{")
        || inner.starts_with("#{")
        || (inner.starts_with('{') && inner.ends_with('}'))
        || (inner.starts_with('<') && inner.ends_with('>'))
        || (inner.starts_with('%') && inner.ends_with('%'))
        || (inner.starts_with('$')
            && inner
                .chars()
                .skip(1)
                .all(|letter| letter.is_ascii_uppercase() || letter == '_'))
        || matches!(inner, "%s" | "%v" | ":password" | "PASSWORD" | "PASS" | "")
        || inner.chars().all(filler)
}
