//! English stems, remembered: to stem a word costs a hundred times as much as to look it up, and most words come again and again.

use std::cell::RefCell;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use rust_stemmers::{Algorithm, Stemmer};

use super::stop_words::is_stop_word;

/// Words a thread remembers, each at the one place that its hash gives it: a newcomer takes that place, so nothing grows and nothing
/// has to be swept. With both texts that is about 150 kB when full.
const PLACES: usize = 2_048;

/// Longer words are rare and not worth a place.
const LONGEST: usize = 24;

/// A word with its stem; a stop word's is empty.
#[derive(Default)]
struct Known {
    word: Box<str>,
    stem: Box<str>,
}

struct Stems {
    stemmer: Stemmer,
    /// Seeded, so that nobody can choose words that push each other out.
    hasher: RandomState,
    known: RefCell<Vec<Known>>,
}

thread_local! {
    static STEMS: Stems = Stems {
        stemmer: Stemmer::create(Algorithm::English),
        hasher: RandomState::default(),
        known: RefCell::default(),
    };
}

/// Calls `sink` with the stem of `word`, which is lower-case ASCII letters; not at all for a stop word.
pub(super) fn stem(word: &str, sink: &mut dyn FnMut(&str)) {
    STEMS.with(|stems| {
        if word.len() > LONGEST {
            return sink(&stems.stemmer.stem(word));
        }
        let place = place(stems.hasher.hash_one(word));
        {
            let known = stems.known.borrow();
            if let Some(known) = known.get(place).filter(|known| &*known.word == word) {
                if !known.stem.is_empty() {
                    sink(&known.stem);
                }
                return;
            }
        }
        let stem = if is_stop_word(word) {
            "".into()
        } else {
            stems.stemmer.stem(word)
        };
        if !stem.is_empty() {
            sink(&stem);
        }
        // A sink that walks another text itself may still be reading.
        if let Ok(mut known) = stems.known.try_borrow_mut() {
            if known.is_empty() {
                known.resize_with(PLACES, Known::default);
            }
            if let Some(slot) = known.get_mut(place) {
                (slot.word, slot.stem) = (word.into(), stem.into());
            }
        }
    });
}

fn place(hash: u64) -> usize {
    usize::try_from(hash % PLACES as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::stem;

    fn of(word: &str) -> Vec<String> {
        let mut found = Vec::new();
        stem(word, &mut |stem| found.push(stem.to_owned()));
        found
    }

    #[test]
    fn a_remembered_stem_is_the_same() {
        for word in ["painting", "the", "painting", "the", "painted"] {
            assert_eq!(
                of(word),
                if word == "the" { vec![] } else { vec!["paint"] },
                "{word}"
            );
        }
    }

    #[test]
    fn words_that_share_a_place_never_share_a_stem() {
        let words: Vec<String> = (0..10_000)
            .map(|i: u32| {
                let letter = |n: u32| char::from(b'b' + u8::try_from(i / n % 20).unwrap());
                [
                    letter(8_000),
                    'a',
                    letter(400),
                    'a',
                    letter(20),
                    'a',
                    letter(1),
                ]
                .iter()
                .collect()
            })
            .collect();
        let fresh = rust_stemmers::Stemmer::create(rust_stemmers::Algorithm::English);
        for word in words.iter().chain(&words) {
            assert_eq!(of(word), [fresh.stem(word)]);
        }
    }

    #[test]
    fn a_sink_may_walk_another_text() {
        let mut found = Vec::new();
        stem("walking", &mut |outer| {
            stem("deeply", &mut |inner| {
                found.push(format!("{outer} {inner}"))
            });
        });
        stem("walking", &mut |outer| {
            stem("deeper", &mut |inner| {
                found.push(format!("{outer} {inner}"))
            });
        });
        assert_eq!(found, ["walk deepli", "walk deeper"]);
    }
}
