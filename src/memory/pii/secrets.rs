//! Secrets that show by their own form: API keys with a provider's prefix, JSON web tokens (RFC
//! 7519), private keys in PEM (RFC 7468). The prefixes are the ones the providers document.

use super::text::View;
use super::{Finding, Kind};

/// A provider's prefix and a body of the right alphabet and length.
const PREFIXED: f32 = 0.97;
/// The same for a short body or a prefix that starts other words as well.
const LIKELY: f32 = 0.80;

/// The bytes a key's body is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alphabet {
    Alnum,
    /// Letters, digits, underscore.
    Word,
    /// Letters, digits, `-`, `_`.
    UrlSafe,
    /// As `UrlSafe`, with dots between the parts.
    Dotted,
    /// Capitals and digits.
    Upper,
    Hex,
    /// Base64, closed by up to two `=`.
    Base64,
    /// A path of letters, digits, `-`, `_`.
    Path,
}

impl Alphabet {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::UrlSafe => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Self::Base64 => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
            }
            Self::Path => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/'),
        }
    }
}

/// What the keys of one provider look like: prefix, alphabet and length of the rest.
pub(super) struct Shape {
    pub(super) prefix: &'static str,
    alphabet: Alphabet,
    least: usize,
    most: usize,
    /// The length all keys of this kind have, 0 where there is none: at this length the prefix says
    /// enough, and the body may happen to have no digit.
    usual: usize,
    /// The prefix is no part of the secret and stays (the host of a webhook).
    keep: bool,
}

const fn open(prefix: &'static str, alphabet: Alphabet, least: usize) -> Shape {
    Shape {
        prefix,
        alphabet,
        least,
        most: usize::MAX,
        usual: 0,
        keep: false,
    }
}

/// As [`open`], for a provider whose keys of today all have one length.
const fn usual(prefix: &'static str, alphabet: Alphabet, least: usize, usual: usize) -> Shape {
    Shape {
        usual,
        ..open(prefix, alphabet, least)
    }
}

const fn exact(prefix: &'static str, alphabet: Alphabet, length: usize) -> Shape {
    Shape {
        prefix,
        alphabet,
        least: length,
        most: length,
        usual: length,
        keep: false,
    }
}

const fn webhook(prefix: &'static str) -> Shape {
    Shape {
        prefix,
        alphabet: Alphabet::Path,
        least: 24,
        most: usize::MAX,
        usual: 0,
        keep: true,
    }
}

/// What this product's own tokens start with, as in `auth::pat`. An identifier and a secret follow,
/// 80 characters; a token cut short is one that somebody pasted badly.
const OWN_PREFIX: &str = "ibex_pat_";

pub(super) static SHAPES: &[Shape] = &[
    usual(OWN_PREFIX, Alphabet::UrlSafe, 8, 80),
    // OpenAI, Anthropic, OpenRouter and other model providers.
    open("sk-proj-", Alphabet::UrlSafe, 20),
    open("sk-svcacct-", Alphabet::UrlSafe, 20),
    open("sk-admin-", Alphabet::UrlSafe, 20),
    open("sk-ant-", Alphabet::UrlSafe, 20),
    open("sk-or-v1-", Alphabet::Hex, 32),
    usual("sk-", Alphabet::UrlSafe, 20, 48),
    usual("gsk_", Alphabet::Alnum, 30, 52),
    usual("xai-", Alphabet::UrlSafe, 40, 80),
    usual("pplx-", Alphabet::Alnum, 32, 48),
    usual("r8_", Alphabet::Alnum, 30, 37),
    usual("hf_", Alphabet::Alnum, 30, 34),
    open("nvapi-", Alphabet::UrlSafe, 40),
    open("tvly-", Alphabet::UrlSafe, 20),
    // Amazon, Google, DigitalOcean, Databricks, Supabase, Vault, Grafana, Tailscale.
    exact("AKIA", Alphabet::Upper, 16),
    exact("ASIA", Alphabet::Upper, 16),
    exact("ABIA", Alphabet::Upper, 16),
    usual("AIza", Alphabet::UrlSafe, 33, 35),
    open("ya29.", Alphabet::Dotted, 24),
    usual("GOCSPX-", Alphabet::UrlSafe, 20, 28),
    open("dop_v1_", Alphabet::Hex, 40),
    open("doo_v1_", Alphabet::Hex, 40),
    open("dor_v1_", Alphabet::Hex, 40),
    open("dapi", Alphabet::Hex, 32),
    open("sbp_", Alphabet::Hex, 40),
    open("hvs.", Alphabet::UrlSafe, 24),
    open("glsa_", Alphabet::Word, 32),
    open("tskey-", Alphabet::UrlSafe, 20),
    // GitHub, GitLab, Docker, Atlassian, package registries.
    usual("ghp_", Alphabet::Alnum, 30, 36),
    usual("gho_", Alphabet::Alnum, 30, 36),
    usual("ghu_", Alphabet::Alnum, 30, 36),
    usual("ghs_", Alphabet::Alnum, 30, 36),
    usual("ghr_", Alphabet::Alnum, 30, 36),
    usual("github_pat_", Alphabet::Word, 22, 82),
    usual("glpat-", Alphabet::UrlSafe, 20, 20),
    usual("glrt-", Alphabet::UrlSafe, 20, 20),
    usual("gldt-", Alphabet::UrlSafe, 20, 20),
    usual("glptt-", Alphabet::UrlSafe, 20, 40),
    usual("dckr_pat_", Alphabet::UrlSafe, 20, 27),
    open("ATATT3x", Alphabet::Base64, 40),
    usual("npm_", Alphabet::Alnum, 30, 36),
    open("pypi-", Alphabet::UrlSafe, 40),
    open("rubygems_", Alphabet::Hex, 40),
    // Slack, Discord, Linear, Notion, Figma, Postman.
    open("xoxb-", Alphabet::UrlSafe, 10),
    open("xoxp-", Alphabet::UrlSafe, 10),
    open("xoxa-", Alphabet::UrlSafe, 10),
    open("xoxr-", Alphabet::UrlSafe, 10),
    open("xoxs-", Alphabet::UrlSafe, 10),
    open("xoxe-", Alphabet::UrlSafe, 10),
    open("xoxe.", Alphabet::Dotted, 20),
    open("xapp-", Alphabet::UrlSafe, 20),
    webhook("hooks.slack.com/services/"),
    webhook("discord.com/api/webhooks/"),
    usual("lin_api_", Alphabet::Alnum, 30, 40),
    usual("ntn_", Alphabet::Alnum, 30, 46),
    open("figd_", Alphabet::UrlSafe, 20),
    open("PMAK-", Alphabet::UrlSafe, 30),
    // Stripe, Shopify, Square, SendGrid, Mailgun, Twilio, Sentry.
    usual("sk_live_", Alphabet::Alnum, 16, 24),
    usual("sk_test_", Alphabet::Alnum, 16, 24),
    usual("rk_live_", Alphabet::Alnum, 16, 24),
    usual("rk_test_", Alphabet::Alnum, 16, 24),
    usual("whsec_", Alphabet::Base64, 16, 32),
    open("shpat_", Alphabet::Hex, 32),
    open("shpss_", Alphabet::Hex, 32),
    open("shpca_", Alphabet::Hex, 32),
    usual("sq0atp-", Alphabet::UrlSafe, 20, 22),
    open("sq0csp-", Alphabet::UrlSafe, 30),
    usual("SG.", Alphabet::Dotted, 40, 66),
    exact("key-", Alphabet::Hex, 32),
    exact("SK", Alphabet::Hex, 32),
    exact("AC", Alphabet::Hex, 32),
    open("sntrys_", Alphabet::Base64, 40),
];

/// Reports the key whose prefix was found from `start` to `end`.
pub(super) fn prefixed(
    view: View,
    start: usize,
    end: usize,
    shape: &Shape,
    found: &mut Vec<Finding>,
) {
    let case_matches = view.slice(start..end) == shape.prefix;
    if !case_matches || !fresh(view, start, shape.alphabet) {
        return;
    }
    let mut stop = view.run(end, usize::MAX, |byte| shape.alphabet.has(byte));
    if shape.alphabet == Alphabet::Base64 {
        stop = view.run(stop, 2, |byte| byte == b'=');
    }
    let body = view.slice(end..stop).trim_end_matches(['.', '/']);
    let stop = end + body.len();
    if !made(body, shape)
        || !(shape.least..=shape.most).contains(&body.len())
        || (shape.most < usize::MAX && view.word_after(stop))
    {
        return;
    }
    let confidence = if body.len() < 16 { LIKELY } else { PREFIXED };
    let start = if shape.keep { end } else { start };
    found.push(Finding {
        kind: Kind::ApiKey,
        range: start..stop,
        confidence,
    });
}

/// Whether a body is made by a machine: it has letters and digits, or letters alone at the length
/// the provider's keys have, or letters that no words consist of.
fn made(body: &str, shape: &Shape) -> bool {
    let letters = body.bytes().any(|byte| byte.is_ascii_alphabetic());
    let digits = body.bytes().any(|byte| byte.is_ascii_digit());
    letters && (digits || (body.len() == shape.usual && varied(body)) || jumbled(body))
}

/// Whether a body has more than a few different characters, unlike `xxxxxxxx`.
fn varied(body: &str) -> bool {
    const FEWEST: u32 = 8;
    let seen = body
        .bytes()
        .fold(0_u128, |seen, byte| seen | 1 << (byte & 127));
    seen.count_ones() >= FEWEST
}

/// Whether letters change between large and small too often for words joined `LikeThis`.
pub(super) fn jumbled(body: &str) -> bool {
    const SHORTEST: usize = 16;
    body.split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|part| part.len() >= SHORTEST)
        .any(|part| {
            let cases = || part.bytes().map(|byte| byte.is_ascii_uppercase());
            let changes = cases()
                .zip(cases().skip(1))
                .filter(|(one, next)| one != next);
            3 * changes.count() >= part.len() && varied(part)
        })
}

/// Whether what stands right after "secret" or "token" can only be one: as long as an AWS secret,
/// or without anything that joins words.
pub(super) fn bare(view: View, at: usize) -> bool {
    const AWS_SECRET: usize = 40;
    const SHORTEST: usize = 20;
    const SHORTEST_HEX: usize = 32;
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let end = view.run(at, usize::MAX, base64);
    let word = view.slice(at..end);
    let has = |wanted: fn(&u8) -> bool| word.bytes().any(|byte| wanted(&byte));
    let cases = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    let plain = !word.contains(['+', '/', '=']);
    let machine =
        (mixed && cases) || jumbled(word) || (mixed && plain && word.len() >= SHORTEST_HEX);
    let length = if plain {
        word.len() >= SHORTEST
    } else {
        word.len() == AWS_SECRET && !word.starts_with('/')
    };
    machine && length && !view.word_after(end) && !matches!(view.at(end), b'-' | b'_')
}

/// Whether a key may start here: not in the middle of a word or of a run of the same alphabet
/// (which also keeps repeated prefixes linear). An escaped line break or a percent escape may
/// stand before it.
fn fresh(view: View, start: usize, alphabet: Alphabet) -> bool {
    let before = view.before(start);
    let touches = view.word_before(start) || (alphabet.has(before) && before != b'/');
    let second = view.before(start.saturating_sub(1));
    let escape = second == b'\\' && matches!(before, b'n' | b't' | b'r');
    let percent = view.before(start.saturating_sub(2)) == b'%'
        && second.is_ascii_hexdigit()
        && before.is_ascii_hexdigit();
    !touches || escape || percent
}

/// Reports the JSON web token that starts at `start`: header and payload are JSON objects, which
/// in base64 start with `eyJ`.
pub(super) fn jwt(view: View, start: usize, found: &mut Vec<Finding>) {
    /// Shortest part: `{"alg":…` has more.
    const SHORTEST: usize = 12;
    if view.slice(start..start + 3) != "eyJ" || !fresh(view, start, Alphabet::Dotted) {
        return;
    }
    let part = |from: usize| view.run(from, usize::MAX, |byte| Alphabet::UrlSafe.has(byte));
    let header = part(start);
    let payload = part(header + 1);
    if view.at(header) != b'.' || header - start < SHORTEST || payload - header <= SHORTEST {
        return;
    }
    let mut stop = payload;
    let mut parts = 2;
    while view.at(stop) == b'.' && parts < 5 && part(stop + 1) > stop + 1 {
        stop = part(stop + 1);
        parts += 1;
    }
    if view.slice(header + 1..header + 4) == "eyJ" || parts == 5 {
        found.push(Finding {
            kind: Kind::ApiKey,
            range: start..stop,
            confidence: PREFIXED,
        });
    }
}

/// Reports the bot token around the `:AA` at `start`: eight to ten digits before it, 33
/// characters after the colon.
pub(super) fn bot_token(view: View, start: usize, found: &mut Vec<Finding>) {
    let mut first = start;
    while start - first < 11 && view.before(first).is_ascii_digit() {
        first -= 1;
    }
    let stop = view.run(start + 1, 40, |byte| Alphabet::UrlSafe.has(byte));
    let shaped = (8..=10).contains(&(start - first))
        && (33..=37).contains(&(stop - start))
        && view.slice(start..start + 3) == ":AA";
    let in_url = view.slice(first.saturating_sub(4)..first) == "/bot";
    if shaped && (in_url || !view.word_before(first)) {
        found.push(Finding {
            kind: Kind::ApiKey,
            range: first..stop,
            confidence: PREFIXED,
        });
    }
}

/// The shortest line of a key, and the shortest key on one line.
const SHORTEST_LINE: usize = 16;

/// Reports the private key whose `-----BEGIN` stands at `start`, and returns where to go on. A
/// key without an end is covered as far as it looks like one.
pub(super) fn private_key(view: View, start: usize, found: &mut Vec<Finding>) -> usize {
    const LABEL: usize = 48;
    let label_start = start + "-----BEGIN".len();
    let label_byte = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ';
    let label_end = view.run(label_start, LABEL, label_byte);
    if !view.slice(label_start..label_end).contains("PRIVATE KEY") || !view.has(label_end, "-----")
    {
        return label_end;
    }
    let body = label_end + 5;
    // The next five dashes end the key or start another one, so no text is searched twice.
    let dashes = view
        .bytes()
        .get(body..)
        .and_then(|rest| memchr::memmem::find(rest, b"-----"));
    let stop = body + dashes.unwrap_or(view.len().saturating_sub(body));
    let inside = view.slice(body..stop);
    let end = if view.has(stop, "-----END") {
        let label = view.run(stop + "-----END".len(), LABEL, label_byte);
        view.run(label, 5, |byte| byte == b'-')
    } else {
        body + unended(inside)
    };
    // "Between BEGIN and END" in prose holds no key.
    let encoded = inside.split(char::is_whitespace).any(line_of_key);
    if encoded && end > body {
        found.push(Finding {
            kind: Kind::ApiKey,
            range: start..end,
            confidence: 0.99,
        });
    }
    end.max(label_end)
}

/// Whether a word is a line of base64; quoted keys have escaped line breaks in them.
fn line_of_key(word: &str) -> bool {
    word.len() >= SHORTEST_LINE
        && word
            .bytes()
            .all(|byte| Alphabet::Base64.has(byte) || matches!(byte, b'=' | b'\\'))
}

/// How much of a text is the body of a key: words of base64, not words of a language.
fn unended(run: &str) -> usize {
    let mut length = 0;
    for word in run.split_inclusive(char::is_whitespace) {
        let base64 = word.trim_end();
        let encoded = base64.is_empty() || line_of_key(base64);
        if !encoded {
            break;
        }
        length += word.len();
    }
    run.get(..length).unwrap_or("").trim_end().len()
}
