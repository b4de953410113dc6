//! One pass of a single automaton over the text finds everything that has a fixed spelling:
//! context words, key prefixes, words that announce a secret, and the starts of URLs and keys.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::context::{self, Hit};
use super::keyed;
use super::secrets::{self, Shape};
use super::text::View;
use super::words::{self, Words};
use super::{Finding, email, network};

/// What a spelling stands for.
#[derive(Clone, Copy)]
enum Role {
    /// A context word; `true` when the word may go on.
    Context(&'static Words, bool),
    Prefix(&'static Shape),
    Keyword(keyed::Class),
    Scheme,
    PrivateKey,
    Jwt,
    BotToken,
    SpelledAt,
    SpelledDot,
    UserOption,
}

/// Spellings without a table of their own.
static OTHERS: &[(&str, Role)] = &[
    ("://", Role::Scheme),
    ("-----BEGIN", Role::PrivateKey),
    ("eyJ", Role::Jwt),
    (":AA", Role::BotToken),
    (" dot ", Role::SpelledDot),
    (" -u ", Role::UserOption),
    ("[at]", Role::SpelledAt),
    ("(at)", Role::SpelledAt),
    ("{at}", Role::SpelledAt),
    ("[@]", Role::SpelledAt),
    ("(@)", Role::SpelledAt),
];

/// The automaton with the role of each of its spellings. Building cannot fail for tables of this
/// size; if it did, only the kinds that need no words would be found, which a test rules out.
static AUTOMATON: LazyLock<Option<(AhoCorasick, Vec<Role>)>> = LazyLock::new(|| {
    let (spellings, roles): (Vec<&str>, Vec<Role>) = spellings().unzip();
    let automaton = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(spellings)
        .ok()?;
    Some((automaton, roles))
});

fn spellings() -> impl Iterator<Item = (&'static str, Role)> {
    let words = words::TABLE.iter().flat_map(|list| {
        list.words.split(", ").map(move |word| {
            let stem = word.strip_suffix('*');
            (stem.unwrap_or(word), Role::Context(list, stem.is_some()))
        })
    });
    let prefixes = secrets::SHAPES
        .iter()
        .map(|shape| (shape.prefix, Role::Prefix(shape)));
    let keywords = keyed::KEYWORDS
        .iter()
        .flat_map(|(class, list)| list.split(", ").map(|word| (word, Role::Keyword(*class))));
    words
        .chain(prefixes)
        .chain(keywords)
        .chain(OTHERS.iter().copied())
}

/// Runs the automaton: returns the context words and reports the secrets.
pub(super) fn read(view: View, found: &mut Vec<Finding>) -> Vec<Hit> {
    let mut hits = Vec::new();
    let Some((automaton, roles)) = &*AUTOMATON else {
        return hits;
    };
    let Ok(matches) = automaton.try_find_overlapping_iter(view.text()) else {
        return hits;
    };
    // Inside a private key nothing else is looked for.
    let mut skip = 0;
    for matched in matches {
        let (start, end) = (matched.start(), matched.end());
        let Some(role) = roles
            .get(matched.pattern().as_usize())
            .filter(|_| start >= skip)
        else {
            continue;
        };
        match *role {
            Role::Context(list, open) => {
                if let Some(hit) = context::hit(view, start, end, list, open) {
                    context::add(&mut hits, hit);
                }
            }
            Role::Prefix(shape) => secrets::prefixed(view, start, end, shape, found),
            Role::Keyword(class) => keyed::find(view, start, end, class, found),
            Role::Scheme => network::userinfo(view, end, found),
            Role::PrivateKey => skip = secrets::private_key(view, start, found),
            Role::Jwt => secrets::jwt(view, start, found),
            Role::BotToken => secrets::bot_token(view, start, found),
            Role::SpelledAt => email::spelled(view, start, end, found),
            Role::SpelledDot => email::in_words(view, start, found),
            Role::UserOption => keyed::user_option(view, end, found),
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automaton_builds() {
        assert!(AUTOMATON.is_some());
    }

    #[test]
    fn no_spelling_is_empty() {
        assert!(spellings().all(|(spelling, _)| !spelling.is_empty()));
    }
}
