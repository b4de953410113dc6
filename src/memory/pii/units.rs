//! What makes digits an amount or a date: the words after them (currencies, units of measure, the
//! names of things that are counted) and the digits themselves.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::numbers::Group;
use super::text::{View, is_unspaced};

/// Currencies, units, and counted things that never follow a phone number.
static MEASURES: &str = "€ $ £ ¥ ₹ ₫ ₽ ₩ ₺ ₴ % ‰ ° eur usd gbp chf inr jpy brl vnd rub cny rmb krw idr thb myr \
    huf czk pln bgn sek nok dkk isk aud nzd cad mxn clp ars zar ngn kes egp sar aed ils twd hkd \
    sgd fcfa xof xaf btc eth sats euro euros dollar dollars pounds yen yuan rupees rupiah rubles roubles pesos \
    reais francs kronor kroner zloty złotych forint lira dong dirhams kr zł kč ft руб рублей грн тенге \
    cents cts million millions billion billions mio mrd lakh crore km kg kb mb gb tb kib mib gib tib ms ns us µs px \
    mm cm dm m² m³ m/s km² km/h mph mg ml hl lbs oz ft² acres ha mah ah wh kwh mwh gwh kw mw gw kv ma hz khz mhz \
    ghz rpm fps dpi ppm psi kcal kj db bytes byte bits bit tokens rows items lines records requests users \
    seconds sec people inhabitants steps points views downloads einwohner миллионов";

/// Units of scripts without spaces, which stand right after the number.
static UNSPACED_MEASURES: &str = "元 円 圓 块钱 塊錢 人民币 美元 欧元 日元 港币 ドル ユーロ ウォン ポンド 円 원 달러 \
    유로 万円 万元 公里 公斤 毫安 千米 米 キロ グラム メートル バイト 字节 台 枚 页 頁 ページ 步 步数 件 部手机";

/// Counted things whose names may also follow a phone number ("… hours 9 to 5").
static COUNTED: &str = "units unit pieces pcs copies copy pages page sheets boxes parcels packages cartons pallets sold \
    sales orders calls messages texts photos pictures images files folders entries documents parts articles words \
    characters letters lines subscribers subscriptions customers visitors visits followers likes votes voters \
    participants employees workers residents citizens households students patients players members accounts \
    devices phones smartphones handsets cars vehicles installs installations impressions clicks plays streams \
    queries events transactions samples cells years days hours minutes months weeks times degrees stück seiten \
    nutzer benutzer aufrufe anrufe geräte stimmen exemplare jahre tage stunden minuten mal pièces unités pages \
    exemplaires utilisateurs appels abonnés habitants clients fois ans jours heures unidades piezas páginas \
    ejemplares usuarios llamadas habitantes clientes veces años días horas pezzi unità pagine copie utenti chiamate \
    abitanti volte anni giorni ore stuks paginas exemplaren gebruikers inwoners keer jaar dagen uur peças cópias \
    chamadas vezes anos dias sztuk stron штук страниц раз пользователей звонков लोग रुपये रुपए";

static MEASURE_SET: LazyLock<HashSet<&str>> = LazyLock::new(|| MEASURES.split(' ').collect());
static COUNTED_SET: LazyLock<HashSet<&str>> = LazyLock::new(|| COUNTED.split(' ').collect());

/// What the word after a number makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Amount {
    None,
    /// The word counts things, but may also follow another number.
    Counted,
    /// The word is a unit.
    Measured,
}

/// What the word after the number that ends at `end` makes of it.
pub(super) fn amount(view: View, end: usize) -> Amount {
    let spaced = view.at(end) == b' ';
    let word = end + usize::from(spaced);
    if unspaced(view, word) || (spaced && names(&MEASURE_SET, view, word)) {
        Amount::Measured
    } else if spaced && names(&COUNTED_SET, view, word) {
        Amount::Counted
    } else {
        Amount::None
    }
}

/// Whether the word at `at` is in a set, or the first part of `EUR/month` and `%-points` is.
fn names(set: &HashSet<&str>, view: View, at: usize) -> bool {
    const LONGEST: usize = 24;
    let end = view.run(at, LONGEST, |byte| {
        byte > b' ' && !b",;:!?()[]{}\"'".contains(&byte)
    });
    // A long word of another script may be cut within a letter; it is no unit then.
    let word = view.slice(at..end).trim_end_matches('.').to_lowercase();
    let first = word.split(['/', '-', '+']).next().unwrap_or("");
    !word.is_empty() && (set.contains(word.as_str()) || set.contains(first))
}

fn unspaced(view: View, at: usize) -> bool {
    /// Countries and other words that start like a unit.
    const OTHERS: &[&str] = &["台湾", "台灣", "台北", "米国", "部门"];
    let rest = view.text().get(at..).unwrap_or("");
    rest.starts_with(is_unspaced)
        && !OTHERS.iter().any(|other| rest.starts_with(other))
        && UNSPACED_MEASURES
            .split(' ')
            .any(|unit| rest.starts_with(unit))
}

/// Whether digits in fours are a list of years or of round numbers.
pub(super) fn several(digits: &str) -> bool {
    let fours = || digits.as_bytes().chunks(4);
    let year = |four: &[u8]| four.starts_with(b"19") || four.starts_with(b"20");
    fours().all(year) || fours().all(|four| four.ends_with(b"00"))
}

/// Whether the window starts or ends like a date.
pub(super) fn dated(groups: &[Group], digits: &str) -> bool {
    let length = |place: usize| groups.get(place).map_or(0, Group::len);
    let century = |text: &str| text.starts_with("19") || text.starts_with("20");
    let first = length(0) == 4 && century(digits) && length(1) <= 2;
    let single = groups.len() == 1 && digits.len() >= 8 && century(digits);
    let last = groups.len() == 3
        && length(0) <= 2
        && length(1) <= 2
        && length(2) == 4
        && digits.get(digits.len() - 4..).is_some_and(century);
    first || last || single
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_after_a_number_is_read_as_a_whole() {
        for (text, expected) in [
            ("1 VND.", Amount::Measured),
            ("1 EUR/month", Amount::Measured),
            ("1元", Amount::Measured),
            ("1 원입니다", Amount::Measured),
            ("1 pages, stapled", Amount::Counted),
            ("1 pageant", Amount::None),
            ("1台湾", Amount::None),
            ("1 Ünïçødé-wörter-öhne-ende", Amount::None),
            ("1", Amount::None),
        ] {
            assert_eq!(amount(View::new(text), 1), expected, "{text}");
        }
    }

    #[test]
    fn years_and_round_numbers_are_several() {
        assert!(several("201920202021") && several("40005000"));
        assert!(!several("20192345"));
    }
}
