//! Secrets that show by the word before them: `password: …`, `api_key=…`, `the token is …`,
//! `Bearer …`, and the secrets in the query of a signed URL.

use super::network::template;
use super::secrets;
use super::text::{View, is_unspaced, is_word};
use super::{Finding, Kind};

/// What a word announces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Chosen by people: short, any characters.
    Password,
    /// Made by a machine: long, letters and digits.
    Token,
    /// As `Token`, only as `?word=` or `&word=`.
    Query,
    /// `Bearer` and `Basic`: the value follows a space.
    Scheme,
}

/// The words that announce a secret, separated by `, `.
pub(super) static KEYWORDS: &[(Class, &str)] = &[
    (
        Class::Password,
        "password, passwd, passwort, pwd, passphrase, passcode, kennwort, contraseña, \
        contrasena, mot de passe, mdp, senha, wachtwoord, parola, lösenord, hasło, şifre, \
        пароль, Пароль, 密码, 密碼, パスワード, 비밀번호, पासवर्ड, pass, login pw, pw",
    ),
    (
        Class::Token,
        "token, secret, client_secret, client secret, secret_key, secret key, secret access \
        key, secret_access_key, secretaccesskey, secretkey, access_key, access key, accesskey, \
        accountkey, sharedaccesskey, api_key, api-key, apikey, api key, private_key, private \
        key, encryption_key, encryption key, signing_key, signing key, credential, \
        credentials, 令牌, 密钥, トークン, api-schlüssel, clé api, clave api, chiave api",
    ),
    (
        Class::Query,
        "sig=, signature=, x-amz-signature=, x-goog-signature=, x-amz-security-token=, key=, \
        auth=, code=",
    ),
    (Class::Scheme, "bearer, basic"),
];

/// `word: value` with a value of the right shape.
const STATED: f32 = 0.84;
/// The same with a short value, or in a sentence ("the password is …").
const TOLD: f32 = 0.76;
/// A quoted value that could be an ordinary word.
const QUOTED_WORD: f32 = 0.50;
/// The longest value that is read.
const LONGEST_VALUE: usize = 512;
/// How far from the word, within one sentence, its value may be announced.
const LONGEST_DETOUR: usize = 40;
/// Words that may stand between the word and its value.
static COPULAS: &[&str] = &[
    "is", "was", "to", "ist", "war", "lautet", "est", "es", "è", "é", "är", "jest", "are", "это",
];
/// The same in scripts without spaces.
static UNSPACED_COPULAS: &[&str] = &["是", "为", "為", "は", "は「", "："];
/// Values with letters and digits that are names of things.
static NAMES: &str = "1password oauth2 base64 sha256 sha512 bcrypt argon2 argon2id utf8 md5 uuid4 uuidv4 hs256 \
    rs256 es256 http2 keepassxc2 sha1 blake3 ed25519 aes256 aes256gcm pbkdf2 scrypt2 x509";
/// Words after "password" or "token" that turn the sentence to something else.
static NO_VALUE: &str = "manager policy field reset hash hashing length rules strength limit budget count usage \
    format algorithm prefix name id expires must should version";
/// Tokens that mark a position, not a right.
static NOT_SECRET: &str = "page next cursor continuation sync max min num total eos bos pad unk csrf stop device \
    public";

/// Whether a list of words separated by spaces has the word.
fn listed(words: &str, word: &str) -> bool {
    words.split(' ').any(|listed| listed == word)
}

/// Where a value was announced and how.
struct Announced {
    at: usize,
    /// By a sign (`:`, `=`) right after the word, not by a sentence.
    directly: bool,
}

/// Reports the secret that the keyword from `start` to `end` announces.
pub(super) fn find(view: View, start: usize, end: usize, class: Class, found: &mut Vec<Finding>) {
    if part_of_word(view, start, end, class) {
        return;
    }
    let in_query = in_query(view, start, end);
    let announced = match class {
        Class::Query if in_query => Some(Announced {
            at: end,
            directly: true,
        }),
        Class::Query => None,
        Class::Scheme if view.at(end) == b' ' => scheme(view, start, end + 1),
        Class::Scheme => None,
        Class::Password | Class::Token => announced(view, start, end, class),
    };
    let Some(announced) = announced else { return };
    let Some((value, quoted)) = value(view, announced.at, in_query) else {
        return;
    };
    let text = view.slice(value.clone());
    // Test reports write `PASS: tests/name_2.rs` and `pass: 45ms`.
    let report = view.has(start, "pass")
        && end - start == 4
        && (text.len() < 6 || text.contains(['/', '.', '_']));
    let Some(confidence) = judge(text, class, announced.directly, quoted).filter(|_| !report)
    else {
        return;
    };
    let kind = if in_query {
        Kind::UrlCredentials
    } else {
        Kind::ApiKey
    };
    found.push(Finding {
        kind,
        range: value,
        confidence,
    });
}

/// Whether the keyword is (the end of) the name of a parameter in the query or fragment of a URL.
fn in_query(view: View, start: usize, end: usize) -> bool {
    const LONGEST_NAME: usize = 24;
    let mut name = start;
    while start - name < LONGEST_NAME
        && (view.before(name).is_ascii_alphanumeric() || matches!(view.before(name), b'_' | b'-'))
    {
        name -= 1;
    }
    matches!(view.before(name), b'?' | b'&' | b'#')
        && (view.before(end) == b'=' || view.at(end) == b'=')
}

/// Whether the keyword is the end of another word ("bypass"), or names no secret (`page_token`).
fn part_of_word(view: View, start: usize, end: usize, class: Class) -> bool {
    let before = view.char_before(start);
    let camel = view.at(start).is_ascii_uppercase() && view.before(start).is_ascii_lowercase();
    let joined = before.is_some_and(|letter| matches!(letter, '_' | '-' | ' '));
    if before.is_some_and(|letter| is_word(letter) && letter != '_') && !camel {
        // `dbpassword`, but neither `bypass` nor `mytoken`.
        return end - start < 8 || class != Class::Password;
    }
    let word_end = if joined { start - 1 } else { start };
    let named = |name: &str| {
        word_end
            .checked_sub(name.len())
            .is_some_and(|first| view.has(first, name) && !view.before(first).is_ascii_alphabetic())
    };
    class != Class::Password && (joined || camel) && NOT_SECRET.split(' ').any(named)
}

/// Where the value of `Bearer …` or `Authorization: Basic …` starts.
fn scheme(view: View, start: usize, end: usize) -> Option<Announced> {
    let header = view
        .slice(start.saturating_sub(24)..start)
        .to_ascii_lowercase()
        .contains("authorization");
    (header || view.has(start, "bearer")).then_some(Announced {
        at: end,
        directly: header,
    })
}

/// Where the value starts that the keyword announces.
fn announced(view: View, start: usize, end: usize, class: Class) -> Option<Announced> {
    let spaces =
        |from: usize, most: usize| view.run(from, most, |byte| matches!(byte, b' ' | b'\t'));
    // `"password": "…"`, `**Password:** …`
    let closed = view.run(end, 3, |byte| {
        matches!(byte, b'"' | b'\'' | b'`' | b'*' | b'\\')
    });
    let sign = spaces(closed, 2);
    let signs = view.run(sign, 2, |byte| matches!(byte, b':' | b'=' | b'>'));
    if signs > sign && view.slice(sign..signs) != "::" {
        let bold = view.run(signs, 2, |byte| byte == b'*');
        let at = view.run(bold, 3, |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        return Some(Announced { at, directly: true });
    }
    if let Some(copula) = UNSPACED_COPULAS
        .iter()
        .find(|copula| view.slice(closed..closed + copula.len()) == **copula)
    {
        return Some(Announced {
            at: spaces(closed + copula.len(), 2),
            directly: true,
        });
    }
    // `--password value`
    if view.slice(start.saturating_sub(2)..start) == "--" && view.at(end) == b' ' {
        return Some(Announced {
            at: end + 1,
            directly: false,
        });
    }
    detour(view, closed, class)
}

/// Follows a sentence from the keyword to "is", "ist", … or a colon.
fn detour(view: View, from: usize, class: Class) -> Option<Announced> {
    let mut at = from;
    let letters = |byte: u8| {
        byte.is_ascii_alphanumeric() || byte >= 0x80 || matches!(byte, b'\'' | b'-' | b'_')
    };
    if view.at(at) != b' ' {
        return None;
    }
    while at < from + LONGEST_DETOUR {
        let word = at + 1;
        let end = view.run(word, LONGEST_DETOUR, letters);
        if at == from && class == Class::Password && follows_bare(view.slice(word..end)) {
            return Some(Announced {
                at: word,
                directly: false,
            });
        }
        if at == from && class == Class::Token && secrets::bare(view, word) {
            return Some(Announced {
                at: word,
                directly: false,
            });
        }
        let copula = COPULAS
            .iter()
            .any(|copula| view.has(word, copula) && word + copula.len() == end);
        let sign = matches!(view.at(end), b':' | b'=');
        if end == word && !sign {
            return None;
        }
        let names_value = !sign || !listed(NO_VALUE, view.slice(word..end));
        if names_value && (sign || (copula && view.at(end) == b' ')) {
            let after = view.run(end + 1, 2, |byte| byte == b' ' || byte == b':');
            return Some(Announced {
                at: after,
                directly: false,
            });
        }
        if view.at(end) != b' ' || listed(NO_VALUE, view.slice(word..end)) {
            return None;
        }
        at = end;
    }
    None
}

/// Whether a word right after "password" is one: it starts like a word and has digits.
fn follows_bare(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    word.len() >= 7
        && digits >= 2
        && word.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && !word.contains(['-', '_'])
}

/// The value at `at` without its quotes, and whether it had any.
fn value(view: View, at: usize, in_query: bool) -> Option<(std::ops::Range<usize>, bool)> {
    let slashes = view.run(at, 1, |byte| byte == b'\\');
    let quote = view.at(slashes);
    let wide = ["「", "“", "«", "„"]
        .iter()
        .find(|open| view.slice(at..at + open.len()) == **open);
    let quoted = matches!(quote, b'"' | b'\'' | b'`') || wide.is_some();
    let start = match wide {
        Some(open) => at + open.len(),
        None if quoted => slashes + 1,
        None => at,
    };
    // A placeholder starts with a bracket, so a value never reaches into one.
    let stops = |byte: u8| {
        byte <= b' '
            || b"\"'`<>[]".contains(&byte)
            || (in_query && b"&#;),".contains(&byte))
            || (!quoted && b",;|".contains(&byte))
    };
    let end = view.run(start, LONGEST_VALUE, |byte| !stops(byte));
    let text = view.text().get(start..end)?;
    // Text in a script without spaces goes on right after the value.
    let text = text
        .split(|letter: char| {
            is_unspaced(letter) || matches!(letter, '」' | '”' | '»' | '“' | '。' | '、')
        })
        .next()?;
    let text = text.trim_end_matches(['.', ',', ';', ':', ')', '}', '\\', '*', '?']);
    (!text.is_empty()).then_some((start..start + text.len(), quoted))
}

/// How likely a value is a secret; `None` when it is something else.
fn judge(value: &str, class: Class, directly: bool, quoted: bool) -> Option<f32> {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value
        .chars()
        .filter(|letter| letter.is_alphabetic())
        .count();
    let code = value.contains("()")
        || value.contains("::")
        || value.contains("->")
        || value.contains("://")
        || (value.contains('(') && value.contains('.'))
        || value.starts_with(['&', '$', '/', '@', '.', '-', '~', '(']);
    if template(value) || code || (digits > 0 && names_something(value)) {
        return None;
    }
    if class == Class::Password {
        return password(value, digits, letters, directly, quoted);
    }
    let mixed = value.split(['-', '_', '.', '/', ':']).any(random);
    match value.len() {
        16.. if mixed => Some(STATED),
        20.. if directly && (letters == value.len() || letters == 0) => Some(TOLD),
        8..16 if mixed && directly => Some(TOLD),
        _ => None,
    }
}

/// Whether a value with digits is the name of a product or an algorithm.
fn names_something(value: &str) -> bool {
    const LONGEST_NAME: usize = 16;
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            .then_some(byte.to_ascii_lowercase())
    };
    value.len() <= LONGEST_NAME
        && NAMES
            .split(' ')
            .any(|name| value.as_bytes().iter().filter_map(plain).eq(name.bytes()))
}

/// Whether a part of a token is made by a machine, unlike those of `my-app-secret-v2`.
fn random(part: &str) -> bool {
    let has = |wanted: fn(&u8) -> bool| part.bytes().any(|byte| wanted(&byte));
    let mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    (mixed && part.len() >= 8) || (mixed && has(u8::is_ascii_punctuation) && part.len() >= 6)
}

/// How likely a value is a password.
fn password(
    value: &str,
    digits: usize,
    letters: usize,
    directly: bool,
    quoted: bool,
) -> Option<f32> {
    let mixed = digits > 0 && letters > 0;
    let symbols = value.chars().any(|letter| "!@#%^&*?+~$=".contains(letter)) && letters > 0;
    let capitals =
        value.chars().skip(1).any(char::is_uppercase) && value.chars().any(char::is_lowercase);
    let path = value.contains('/') && !symbols && !capitals;
    let spelled = directly && letters >= 14 && value.matches('-').count() >= 3;
    let (least, confidence) = if directly { (4, STATED) } else { (6, TOLD) };
    let numeric = directly && digits >= 6 && digits == value.len();
    let chosen = mixed || symbols || spelled || numeric || (capitals && value.len() >= 10);
    if value.len() >= least && chosen && !path {
        return Some(confidence);
    }
    (quoted && directly && letters >= 6).then_some(QUOTED_WORD)
}

/// Reports the `user:password` after the option `-u` of a command, which ends at `at`.
pub(super) fn user_option(view: View, at: usize, found: &mut Vec<Finding>) {
    let start = view.run(at, 1, |byte| matches!(byte, b'"' | b'\''));
    let end = view.run(start, LONGEST_VALUE, |byte| {
        byte > b' ' && !b"\"'`<>[]|;".contains(&byte)
    });
    let credentials = view.slice(start..end);
    let Some((user, password)) = credentials.split_once(':') else {
        return;
    };
    let named = user.bytes().any(|byte| byte.is_ascii_alphabetic());
    if named && judge(password, Class::Password, true, false).is_some() {
        found.push(Finding {
            kind: Kind::UrlCredentials,
            range: start..end,
            confidence: TOLD,
        });
    }
}
