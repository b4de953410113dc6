//! E-mail addresses (RFC 5321 lengths, RFC 6531 letters of any script), also with `%40`, and
//! spelled out with `[at]` and `(dot)`. Git remotes, npm scopes and package versions are none.

use super::context::{self, Hit};
use super::text::{View, is_unspaced};
use super::{Finding, Kind};

/// A local part, an `@` and a host name with a top-level domain.
const ADDRESS: f32 = 0.93;
/// The same in the form `user@host:path`, as scp takes it.
const REMOTE: f32 = 0.55;
/// The user and host of a URL.
const URL_USER: f32 = 0.40;
/// A host without top-level domain.
const NO_DOMAIN: f32 = 0.32;
/// Spelled out with brackets around "at".
const SPELLED: f32 = 0.86;
/// Spelled out in words.
const IN_WORDS: f32 = 0.76;
/// Longest local part and longest domain in bytes.
const LONGEST_LOCAL: usize = 64;
const LONGEST_DOMAIN: usize = 253;

/// Endings of files that look like a top-level domain after an `@` (`icon@2x.png`).
static FILE_ENDINGS: &str = "png jpg jpeg gif svg webp js ts tsx jsx css json html yml yaml toml lock tgz gz zip \
    service socket timer txt log local localhost internal lan";
/// What follows the name of a package or of a branch, not of a person.
static TAGS: &str = "latest next beta alpha canary rc stable lts main master head dev tip edge nightly git localhost";
/// Accounts that belong to a service, not a person: `git@host` names a remote.
static SERVICE_ACCOUNTS: &[&str] = &[
    "git", "hg", "svn", "gitlab", "gitea", "aur", "forgejo", "anoncvs",
];

/// Reports the addresses written with `@` or `%40`.
pub(super) fn find(view: View, hits: &[Hit], found: &mut Vec<Finding>) {
    for at in memchr::memchr_iter(b'@', view.bytes()) {
        found.extend(address(view, hits, at, at + 1));
    }
    for at in memchr::memmem::find_iter(view.bytes(), b"%40") {
        found.extend(address(view, hits, at, at + 3));
    }
}

/// The address around an at sign that reaches from `at` to `after`.
fn address(view: View, hits: &[Hit], at: usize, after: usize) -> Option<Finding> {
    let start = local_start(view, at)?;
    let (end, dots) = domain_end(view, after);
    let local = view.slice(start..at);
    let domain = view.slice(after..end);
    if SERVICE_ACCOUNTS.contains(&local) || domain.len() < 2 {
        return None;
    }
    let confidence = if dots == 0 {
        let named = domain.len() >= 3
            && domain
                .bytes()
                .all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
        let personal = local.len() >= 2 && local.chars().any(char::is_alphabetic);
        let tag = TAGS.split(' ').any(|tag| domain.eq_ignore_ascii_case(tag));
        (named && personal && !tag).then_some(NO_DOMAIN)?
    } else if !top_level(domain) || versioned(domain) {
        return None;
    } else if view.at(end) == b':' && path_follows(view, end + 1) {
        REMOTE
    } else if view.slice(start.saturating_sub(3)..start) == "://" {
        URL_USER
    } else {
        ADDRESS
    };
    let mut finding = Finding {
        kind: Kind::EmailAddress,
        range: start..end,
        confidence,
    };
    if dots == 0 || confidence < ADDRESS {
        finding.confidence = context::weigh(hits, &finding, context::MAIL);
    }
    Some(finding)
}

/// Where the local part that ends at `at` starts; `None` when there is none.
fn local_start(view: View, at: usize) -> Option<usize> {
    let mut start = at;
    for letter in view.text().get(..at)?.chars().rev() {
        if at - start >= LONGEST_LOCAL || !local_letter(letter) {
            break;
        }
        start -= letter.len_utf8();
    }
    // `%3Dname%40…`: the part before an escape is not the local part.
    if let Some(escape) = view.slice(start..at).rfind('%') {
        let past = start + escape + 3;
        let hex = view
            .slice(start + escape + 1..past)
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit());
        start = if hex && past < at { past } else { start };
    }
    let local = view
        .slice(start..at)
        .trim_start_matches(['.', '-', '\'', '+', '_', '%']);
    let start = at - local.len();
    (!local.is_empty() && !local.ends_with('.') && view.before(start) != b'@').then_some(start)
}

fn local_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric()
        || matches!(letter, '.' | '_' | '%' | '+' | '-' | '\'')
        || (!letter.is_ascii() && letter.is_alphanumeric())
}

/// Where the domain that starts at `from` ends, and how many dots it has.
fn domain_end(view: View, from: usize) -> (usize, usize) {
    let mut end = from;
    let mut last = from;
    let mut dots = 0;
    let rest = view.text().get(from..).unwrap_or("");
    for letter in rest.chars() {
        let in_label = letter.is_ascii_alphanumeric()
            || letter == '-'
            || (!letter.is_ascii() && letter.is_alphanumeric());
        if !in_label && (letter != '.' || last == from || view.before(last) == b'.') {
            break;
        }
        // Chinese and Japanese sentences go on without a space after the address.
        let ascii_so_far = view.slice(from..last).is_ascii();
        if last - from >= LONGEST_DOMAIN
            || (last > from
                && ascii_so_far
                && is_unspaced(letter)
                && dots > 0
                && view.before(last) != b'.')
        {
            break;
        }
        last += letter.len_utf8();
        dots += usize::from(letter == '.');
        if letter != '.' && letter != '-' {
            end = last;
        }
    }
    // A dot at the end belongs to the sentence.
    (
        end,
        view.slice(from..end)
            .bytes()
            .filter(|byte| *byte == b'.')
            .count(),
    )
}

/// Whether the last label is a top-level domain: letters only (or punycode) and no file ending.
fn top_level(domain: &str) -> bool {
    let Some((_, last)) = domain.rsplit_once('.') else {
        return false;
    };
    let letters = last.chars().all(char::is_alphabetic) && last.chars().nth(1).is_some();
    let known = FILE_ENDINGS
        .split(' ')
        .any(|ending| last.eq_ignore_ascii_case(ending));
    (letters || last.starts_with("xn--")) && !known
}

/// Whether the domain starts like a version: `pkg@1.2.3-beta.rc`.
fn versioned(domain: &str) -> bool {
    let first = domain.trim_start_matches(|letter: char| letter.is_ascii_digit());
    first.len() < domain.len()
        && first
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Whether what follows a colon is the path of a remote rather than a sentence or a password.
fn path_follows(view: View, at: usize) -> bool {
    let end = view.run(at, 128, |byte| byte.is_ascii_graphic());
    let path = view.slice(at..end);
    path.starts_with(['/', '~']) || path.contains('/') || path.ends_with(".git")
}

/// Reports the address spelled out around an "at" in brackets that reaches from `at` to `after`.
pub(super) fn spelled(view: View, at: usize, after: usize, found: &mut Vec<Finding>) {
    let trimmed = view
        .slice(at.saturating_sub(2)..at)
        .trim_end_matches(' ')
        .len();
    let local_end = at.saturating_sub(2) + trimmed;
    let Some(start) = local_start(view, local_end.min(at)) else {
        return;
    };
    let from = view.run(after, 2, |byte| byte == b' ');
    let mut end = view.run(from, 63, |byte| {
        byte.is_ascii_alphanumeric() || byte == b'-'
    });
    let mut dots = 0;
    while let Some(dot) = dot(view, end).filter(|_| end > from && dots < 4) {
        let next = view.run(dot, 63, |byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if next == dot {
            break;
        }
        (end, dots) = (next, dots + 1);
    }
    let top = view.slice(end.saturating_sub(2)..end);
    if dots > 0 && top.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        found.push(Finding {
            kind: Kind::EmailAddress,
            range: start..end,
            confidence: SPELLED,
        });
    }
}

/// Where a dot, plain or spelled out, ends.
fn dot(view: View, at: usize) -> Option<usize> {
    if view.at(at) == b'.' {
        return Some(at + 1);
    }
    let word = view.run(at, 1, |byte| byte == b' ');
    ["[dot]", "(dot)", "{dot}", "dot ", "[punkt]", "(punkt)"]
        .iter()
        .find(|spelled| view.has(word, spelled))
        .map(|spelled| view.run(word + spelled.len(), 1, |byte| byte == b' '))
}

/// Reports "name at host dot com" around the " dot " at `dot`, for the usual top-level domains.
pub(super) fn in_words(view: View, dot: usize, found: &mut Vec<Finding>) {
    const TOP_LEVEL: &[&str] = &[
        "com", "org", "net", "edu", "io", "de", "fr", "es", "it", "nl", "ch", "uk", "co", "in",
        "jp", "cn", "br", "au", "dev",
    ];
    let top = dot + " dot ".len();
    let listed = TOP_LEVEL
        .iter()
        .find(|name| view.has(top, name) && !view.word_after(top + name.len()));
    let mut host = dot;
    while dot - host < 63
        && (view.before(host).is_ascii_alphanumeric() || view.before(host) == b'-')
    {
        host -= 1;
    }
    let Some((name, at)) = listed.zip(host.checked_sub(4)) else {
        return;
    };
    if !view.has(at, " at ") || host == dot {
        return;
    }
    if let Some(start) = local_start(view, at) {
        found.push(Finding {
            kind: Kind::EmailAddress,
            range: start..top + name.len(),
            confidence: IN_WORDS,
        });
    }
}
