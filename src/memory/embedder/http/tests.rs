//! What needs no server; the rest is tested against a scripted one in `tests/ibex`.

use super::head;

#[test]
fn texts_are_cut_between_characters() {
    assert_eq!(head("größer", 3), "grö");
    assert_eq!(head("kurz", 4), "kurz");
    assert_eq!(head("kurz", 5), "kurz");
}
