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
    /// The prefix is no part of the secret and stays (the host of a webhook).
    keep: bool,
}

const fn open(prefix: &'static str, alphabet: Alphabet, least: usize) -> Shape {
    Shape {
        prefix,
        alphabet,
        least,
        most: usize::MAX,
        keep: false,
    }
}

const fn exact(prefix: &'static str, alphabet: Alphabet, length: usize) -> Shape {
    Shape {
        prefix,
        alphabet,
        least: length,
        most: length,
        keep: false,
    }
}

const fn webhook(prefix: &'static str) -> Shape {
    Shape {
        prefix,
        alphabet: Alphabet::Path,
        least: 24,
        most: usize::MAX,
        keep: true,
    }
}

/// The shape of this proxy's own client tokens; short ones are accepted because the length is
/// not part of what identifies them.
const OWN_PREFIX: &str = "ibx_";

pub(super) static SHAPES: &[Shape] = &[
    open(OWN_PREFIX, Alphabet::Alnum, 8),
    // OpenAI, Anthropic, OpenRouter and other model providers.
    open("sk-proj-", Alphabet::UrlSafe, 20),
    open("sk-svcacct-", Alphabet::UrlSafe, 20),
    open("sk-admin-", Alphabet::UrlSafe, 20),
    open("sk-ant-", Alphabet::UrlSafe, 20),
    open("sk-or-v1-", Alphabet::Hex, 32),
    open("sk-", Alphabet::UrlSafe, 20),
    open("gsk_", Alphabet::Alnum, 30),
    open("xai-", Alphabet::UrlSafe, 40),
    open("pplx-", Alphabet::Alnum, 32),
    open("r8_", Alphabet::Alnum, 30),
    open("hf_", Alphabet::Alnum, 30),
    open("nvapi-", Alphabet::UrlSafe, 40),
    open("tvly-", Alphabet::UrlSafe, 20),
    // Amazon, Google, DigitalOcean, Databricks, Supabase, Vault, Grafana, Tailscale.
    exact("AKIA", Alphabet::Upper, 16),
    exact("ASIA", Alphabet::Upper, 16),
    exact("ABIA", Alphabet::Upper, 16),
    open("AIza", Alphabet::UrlSafe, 33),
    open("ya29.", Alphabet::Dotted, 24),
    open("GOCSPX-", Alphabet::UrlSafe, 20),
    open("dop_v1_", Alphabet::Hex, 40),
    open("doo_v1_", Alphabet::Hex, 40),
    open("dor_v1_", Alphabet::Hex, 40),
    open("dapi", Alphabet::Hex, 32),
    open("sbp_", Alphabet::Hex, 40),
    open("hvs.", Alphabet::UrlSafe, 24),
    open("glsa_", Alphabet::Word, 32),
    open("tskey-", Alphabet::UrlSafe, 20),
    // GitHub, GitLab, Docker, Atlassian, package registries.
    open("ghp_", Alphabet::Alnum, 30),
    open("gho_", Alphabet::Alnum, 30),
    open("ghu_", Alphabet::Alnum, 30),
    open("ghs_", Alphabet::Alnum, 30),
    open("ghr_", Alphabet::Alnum, 30),
    open("github_pat_", Alphabet::Word, 22),
    open("glpat-", Alphabet::UrlSafe, 20),
    open("glrt-", Alphabet::UrlSafe, 20),
    open("gldt-", Alphabet::UrlSafe, 20),
    open("glptt-", Alphabet::UrlSafe, 20),
    open("dckr_pat_", Alphabet::UrlSafe, 20),
    open("ATATT3x", Alphabet::Base64, 40),
    open("npm_", Alphabet::Alnum, 30),
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
    open("lin_api_", Alphabet::Alnum, 30),
    open("ntn_", Alphabet::Alnum, 30),
    open("figd_", Alphabet::UrlSafe, 20),
    open("PMAK-", Alphabet::UrlSafe, 30),
    // Stripe, Shopify, Square, SendGrid, Mailgun, Twilio, Sentry.
    open("sk_live_", Alphabet::Alnum, 16),
    open("sk_test_", Alphabet::Alnum, 16),
    open("rk_live_", Alphabet::Alnum, 16),
    open("rk_test_", Alphabet::Alnum, 16),
    open("whsec_", Alphabet::Base64, 16),
    open("shpat_", Alphabet::Hex, 32),
    open("shpss_", Alphabet::Hex, 32),
    open("shpca_", Alphabet::Hex, 32),
    open("sq0atp-", Alphabet::UrlSafe, 20),
    open("sq0csp-", Alphabet::UrlSafe, 30),
    open("SG.", Alphabet::Dotted, 40),
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
    let mixed = body.bytes().any(|byte| byte.is_ascii_digit())
        && body.bytes().any(|byte| byte.is_ascii_alphabetic());
    if !mixed
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
