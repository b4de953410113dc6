//! Countries and well-known cities: which two places exclude each other as a home, and which one holds the other.
//!
//! "Lives in Lisbon" and "lives in Alfama" are both true of one person, and only knowledge of places can tell. So a home replaces
//! another one by rule only where both places are known here; the rest is a question for the classifier.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How two places stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// Nobody has a home in both at once.
    Apart,
    /// The first lies in the second.
    Within,
    /// The second lies in the first.
    Holds,
    /// At least one is not known.
    Unknown,
}

/// Countries with their cities, all in lower case.
const COUNTRIES: &[(&str, &str)] = &[
    (
        "portugal",
        "\
        porto, lisbon, braga, coimbra, faro, aveiro, funchal, evora, \u{e9}vora, setubal, guimar\u{e3}es",
    ),
    (
        "spain",
        "\
        madrid, barcelona, valencia, seville, bilbao, malaga, m\u{e1}laga, zaragoza, granada, vigo, \
        palma",
    ),
    (
        "france",
        "\
        paris, lyon, marseille, toulouse, nice, nantes, bordeaux, lille, strasbourg, rennes, grenoble",
    ),
    (
        "germany",
        "\
        berlin, munich, hamburg, cologne, frankfurt, stuttgart, leipzig, dresden, bremen, hanover, \
        nuremberg, d\u{fc}sseldorf, dusseldorf, dortmund, essen, bonn, freiburg, heidelberg, \
        m\u{fc}nchen, k\u{f6}ln",
    ),
    ("austria", "vienna, graz, linz, salzburg, innsbruck, wien"),
    (
        "switzerland",
        "zurich, z\u{fc}rich, geneva, basel, bern, lausanne, lugano",
    ),
    (
        "italy",
        "\
        rome, milan, naples, turin, florence, bologna, venice, genoa, palermo, verona, trieste, padua",
    ),
    (
        "netherlands",
        "\
        amsterdam, rotterdam, utrecht, the hague, hague, eindhoven, groningen, delft, leiden, haarlem",
    ),
    ("belgium", "brussels, antwerp, ghent, bruges, leuven, liege"),
    ("denmark", "copenhagen, aarhus, odense, aalborg"),
    (
        "sweden",
        "stockholm, gothenburg, malmo, malm\u{f6}, uppsala, lund",
    ),
    ("norway", "oslo, bergen, trondheim, stavanger, troms\u{f8}"),
    ("finland", "helsinki, tampere, turku, oulu, espoo"),
    ("iceland", "reykjavik"),
    ("ireland", "dublin, cork, galway, limerick, belfast"),
    (
        "uk",
        "\
        london, manchester, birmingham, leeds, glasgow, edinburgh, bristol, liverpool, sheffield, \
        newcastle, cardiff, belfast, cambridge, oxford, nottingham, brighton, york, aberdeen, dundee, \
        bath, leicester, southampton",
    ),
    (
        "poland",
        "\
        warsaw, krakow, krak\u{f3}w, wroclaw, gdansk, poznan, lodz, katowice, lublin",
    ),
    ("czechia", "prague, brno, ostrava"),
    ("slovakia", "bratislava, kosice"),
    ("hungary", "budapest, debrecen, szeged"),
    ("romania", "bucharest, cluj, timisoara, iasi, brasov"),
    ("bulgaria", "sofia, plovdiv, varna"),
    ("greece", "athens, thessaloniki, patras"),
    ("turkey", "istanbul, ankara, izmir, antalya"),
    ("croatia", "zagreb, split, rijeka"),
    ("serbia", "belgrade, novi sad"),
    ("slovenia", "ljubljana, maribor"),
    ("estonia", "tallinn, tartu"),
    ("latvia", "riga"),
    ("lithuania", "vilnius, kaunas"),
    ("ukraine", "kyiv, kiev, lviv, odesa, kharkiv"),
    (
        "russia",
        "moscow, st petersburg, saint petersburg, kazan, novosibirsk",
    ),
    (
        "usa",
        "\
        new york, new york city, nyc, los angeles, chicago, houston, phoenix, philadelphia, san antonio, \
        san diego, dallas, austin, san jose, san francisco, seattle, denver, boston, nashville, detroit, \
        portland, las vegas, memphis, baltimore, milwaukee, albuquerque, tucson, sacramento, kansas \
        city, atlanta, miami, oakland, minneapolis, cleveland, tampa, new orleans, pittsburgh, \
        cincinnati, st louis, orlando, salt lake city, honolulu, anchorage, raleigh, charlotte, \
        columbus, indianapolis, madison, ann arbor, cambridge, birmingham, washington dc",
    ),
    (
        "canada",
        "\
        toronto, vancouver, montreal, calgary, ottawa, edmonton, winnipeg, quebec city, halifax, london",
    ),
    (
        "mexico",
        "mexico city, guadalajara, monterrey, puebla, tijuana, oaxaca, merida",
    ),
    (
        "brazil",
        "\
        sao paulo, s\u{e3}o paulo, rio de janeiro, brasilia, salvador, fortaleza, recife, curitiba, \
        porto alegre",
    ),
    ("argentina", "buenos aires, rosario, mendoza, cordoba"),
    ("chile", "santiago, valparaiso, concepcion"),
    (
        "colombia",
        "bogota, bogot\u{e1}, medellin, medell\u{ed}n, cartagena",
    ),
    ("peru", "lima, cusco, arequipa"),
    ("uruguay", "montevideo"),
    ("ecuador", "quito, guayaquil"),
    (
        "japan",
        "\
        tokyo, osaka, kyoto, nagoya, sapporo, fukuoka, kobe, yokohama, hiroshima, sendai",
    ),
    ("south korea", "seoul, busan, incheon, daegu"),
    (
        "china",
        "beijing, shanghai, shenzhen, guangzhou, chengdu, hangzhou, wuhan, nanjing",
    ),
    ("taiwan", "taipei, kaohsiung, taichung"),
    (
        "india",
        "\
        delhi, new delhi, mumbai, bangalore, bengaluru, chennai, hyderabad, kolkata, pune, jaipur, \
        ahmedabad",
    ),
    ("vietnam", "hanoi, ho chi minh city, da nang"),
    ("thailand", "bangkok, chiang mai, phuket"),
    ("indonesia", "jakarta, bandung, surabaya"),
    ("malaysia", "kuala lumpur, penang"),
    ("philippines", "manila, cebu, davao"),
    ("pakistan", "karachi, lahore, islamabad"),
    ("bangladesh", "dhaka, chittagong"),
    (
        "australia",
        "\
        sydney, melbourne, brisbane, perth, adelaide, canberra, hobart, darwin, newcastle",
    ),
    ("new zealand", "auckland, wellington, christchurch, dunedin"),
    ("israel", "tel aviv, haifa, jerusalem"),
    ("uae", "dubai, abu dhabi"),
    ("egypt", "cairo, alexandria"),
    ("morocco", "casablanca, rabat, marrakesh, fez, tangier"),
    ("kenya", "nairobi, mombasa"),
    ("ghana", "accra, kumasi"),
    ("nigeria", "lagos, abuja, ibadan"),
    ("ethiopia", "addis ababa"),
    ("south africa", "cape town, johannesburg, durban, pretoria"),
    ("senegal", "dakar"),
    ("tunisia", "tunis"),
    ("singapore", ""),
    ("luxembourg", ""),
    ("malta", "valletta"),
];

/// Other names of one place. Listed in pairs: the name on the left means the one on the right.
const ALIASES: &[(&str, &str)] = &[
    ("nyc", "new york city"),
    ("m\u{fc}nchen", "munich"),
    ("k\u{f6}ln", "cologne"),
    ("wien", "vienna"),
    ("z\u{fc}rich", "zurich"),
    ("malm\u{f6}", "malmo"),
    ("m\u{e1}laga", "malaga"),
    ("\u{e9}vora", "evora"),
    ("d\u{fc}sseldorf", "dusseldorf"),
    ("krak\u{f3}w", "krakow"),
    ("kiev", "kyiv"),
    ("bengaluru", "bangalore"),
    ("s\u{e3}o paulo", "sao paulo"),
    ("bogot\u{e1}", "bogota"),
    ("medell\u{ed}n", "medellin"),
    ("new delhi", "delhi"),
    ("hague", "the hague"),
    ("saint petersburg", "st petersburg"),
    ("united kingdom", "uk"),
    ("great britain", "uk"),
    ("united states", "usa"),
    ("us", "usa"),
    ("united states of america", "usa"),
    ("czech republic", "czechia"),
    ("korea", "south korea"),
    ("united arab emirates", "uae"),
];

/// Each city with its countries. Some names are taken twice.
static CITIES: LazyLock<HashMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let mut cities: HashMap<&str, Vec<&str>> = HashMap::with_capacity(512);
    for (country, list) in COUNTRIES {
        cities.entry(country).or_default();
        for city in list
            .split(',')
            .map(str::trim)
            .filter(|city| !city.is_empty())
        {
            cities.entry(city).or_default().push(country);
        }
    }
    cities
});

static NAMES: LazyLock<HashMap<&'static str, &'static str>> =
    LazyLock::new(|| ALIASES.iter().copied().collect());

/// The one name of a place that has several.
pub(super) fn canonical(place: &str) -> &str {
    NAMES.get(place).copied().unwrap_or(place)
}

/// Whether a place is known.
pub(super) fn is_known(place: &str) -> bool {
    CITIES.contains_key(canonical(place))
}

fn holds(country: &str, city: &str) -> bool {
    CITIES
        .get(city)
        .is_some_and(|countries| countries.contains(&country))
}

/// "lisbon portugal" as "lisbon".
fn city(place: &str) -> &str {
    let split = |(at, _): (usize, &str)| {
        let (city, country) = place.split_at_checked(at)?;
        holds(canonical(country.trim_start()), city).then_some(city)
    };
    place.match_indices(' ').find_map(split).unwrap_or(place)
}

/// How `one` stands to `other`; both in lower case and not the same.
pub(super) fn compare(one: &str, other: &str) -> Places {
    let (one, other) = (city(canonical(one)), city(canonical(other)));
    // Equal now: one of them was written with its country.
    if one == other || !is_known(one) || !is_known(other) {
        return Places::Unknown;
    }
    match (holds(other, one), holds(one, other)) {
        (true, _) => Places::Within,
        (false, true) => Places::Holds,
        (false, false) => Places::Apart,
    }
}
