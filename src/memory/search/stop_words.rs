//! English words that carry no topic.

use std::collections::HashSet;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

const WORDS: &str = "a about above after again all also am an and any are aren as at be because been before being below between both but by \
    can cannot could couldn d did didn do does doesn doing don down during each etc even ever few for from further get gets getting give got \
    had hadn has hasn have haven having he her here hers herself hey hi him himself his how however i if in into is isn it its itself \
    just know let ll m may me might more most much must my myself no nor not now of off oh on once only or other our ours ourselves out over own \
    please re really s same shall she should shouldn show so some such t tell than that the their theirs them themselves then there these they \
    this those though through to too under until up us ve very was wasn we well were weren what when where which while who whom whose \
    why will with won would wouldn yeah yes yet you your yours yourself yourselves";

static SET: LazyLock<HashSet<&'static str, FixedState>> =
    LazyLock::new(|| WORDS.split_whitespace().collect());

/// Whether `word`, in lower case, is one of them.
pub(super) fn is_stop_word(word: &str) -> bool {
    word.len() <= 10 && SET.contains(word)
}
