//! Words that can stand as a value of a short-phrase attribute, by category, and tools and preferences by the family in which they
//! exclude each other.
//!
//! "The status is blocked" gives a value, "the status is checked daily" does not, and only knowing the values tells them apart. Two
//! values exclude each other when they are of one category.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Values of "favorite", "default", "status" and similar attributes.
const CATEGORIES: &[(&str, &str)] = &[
    (
        "color",
        "\
        red, green, blue, yellow, orange, purple, violet, pink, brown, black, white, gray, teal, \
        turquoise, indigo, navy, cyan, magenta, beige, maroon, lavender, crimson, scarlet, amber",
    ),
    (
        "status",
        "\
        blocked, complete, completed, done, open, closed, active, inactive, paused, pending, in \
        progress, on hold, on track, at risk, delayed, started, shipped, deployed, released, merged, \
        approved, rejected, resolved, stalled, finished, ready, live, stable, healthy, degraded, in \
        review, running, stopped, failed, queued",
    ),
    (
        "food",
        "\
        pizza, sushi, ramen, pasta, curry, tacos, lasagna, risotto, paella, burgers, falafel, hummus, \
        soup, salad, steak, dumplings, pho, pad thai, biryani, chocolate, ice cream, pancakes, cheese, \
        noodles, rice, bread, mango, mangoes, apples, strawberries, cherries, bananas, cake, gnocchi, \
        couscous, ratatouille, goulash, kimchi, bibimbap, tapas, burritos, spaghetti, fish, chicken",
    ),
    (
        "currency",
        "\
        eur, usd, gbp, chf, jpy, kuna, franc, yen, yuan, rupee, krona, krone, zloty, peso, real, lira, \
        forint, rand, ruble, mark, lev",
    ),
    ("season", "spring, summer, autumn, fall, winter"),
    (
        "log level",
        "trace, debug, info, warn, warning, error, fatal, off",
    ),
    ("format", "json, logfmt, plain text, text"),
    (
        "rank",
        "\
        p0, p1, p2, p3, p4, sev1, sev2, sev3, high, low, medium, critical, urgent, normal",
    ),
    ("branch", "main, master, develop, trunk, dev"),
    ("theme", "dark, light, system, solarized"),
    (
        "drink",
        "\
        coffee, tea, water, beer, wine, juice, lemonade, cola, whisky, cocoa, milk, espresso",
    ),
    (
        "animal",
        "\
        dog, cat, horse, fox, owl, otter, wolf, bear, elephant, rabbit, panda, penguin, tiger",
    ),
    (
        "sport",
        "\
        tennis, football, soccer, basketball, rugby, cricket, golf, swimming, volleyball, hockey, \
        baseball, badminton, climbing, cycling, skiing",
    ),
    (
        "genre",
        "\
        jazz, rock, pop, techno, classical, folk, blues, metal, soul, funk, reggae, hip hop",
    ),
    (
        "subject",
        "\
        maths, mathematics, history, physics, chemistry, biology, geography, philosophy, art",
    ),
    (
        "role",
        "\
        analyst, manager, engineer, designer, nurse, teacher, doctor, director, developer, consultant, \
        accountant, researcher, administrator, architect, assistant, chef, barista, lawyer, editor, \
        senior manager, senior engineer, staff engineer, principal engineer, senior analyst, product \
        manager, project manager, software engineer, data scientist, data analyst, team lead, tech lead, \
        engineering manager, intern, senior designer, vice president, data engineer",
    ),
];

/// Tools and preferences of which one is used or preferred at a time, where that is common knowledge.
const FAMILIES: &[(&str, &str)] = &[
    (
        "editor",
        "\
        vim, neovim, emacs, helix, nano, vscode, vs code, sublime text, zed, kakoune",
    ),
    (
        "sql",
        "mysql, postgres, postgresql, mariadb, sql server, oracle, sqlite",
    ),
    ("shell", "bash, zsh, fish, nushell, powershell"),
    ("tracker", "trello, linear, jira, asana, basecamp"),
    (
        "ci",
        "jenkins, circleci, travis, github actions, gitlab ci, buildkite",
    ),
    ("packages", "npm, yarn, pnpm, bun"),
    ("browser", "firefox, chrome, safari, brave, vivaldi"),
    ("mode", "dark mode, light mode"),
    (
        "theme",
        "dark theme, light theme, dark themes, light themes",
    ),
    ("indent", "tabs, spaces"),
    ("hot drink", "tea, coffee"),
    ("seat", "window seat, aisle seat, window seats, aisle seats"),
    (
        "answers",
        "\
        short answers, long answers, detailed answers, concise answers, brief answers, verbose answers",
    ),
    (
        "replies",
        "\
        short replies, long replies, detailed replies, concise replies, brief replies",
    ),
    (
        "responses",
        "\
        short responses, long responses, detailed responses, concise responses, brief responses",
    ),
    (
        "tone",
        "formal tone, informal tone, casual tone, friendly tone",
    ),
    ("units", "metric, imperial, metric units, imperial units"),
    ("temperature", "celsius, fahrenheit"),
    (
        "clock",
        "24-hour clock, 12-hour clock, 24-hour time, 12-hour time",
    ),
    (
        "meetings",
        "morning meetings, afternoon meetings, evening meetings",
    ),
    (
        "appointments",
        "morning appointments, afternoon appointments",
    ),
    ("water", "still water, sparkling water"),
    ("english", "american english, british english"),
];

/// Words that say where something or somebody comes from, or what they believe.
const ORIGINS: &str = "\
    german french dutch greek swiss czech thai korean american mexican african european asian \
    russian welsh arab arabic iraqi israeli pakistani filipino chilean cuban roman hindu muslim \
    catholic buddhist protestant atheist norwegian egyptian kenyan nigerian moroccan canadian vegan \
    vegetarian gemini capricorn aquarius sagittarius libra scorpio pisces taurus virgo leo aries \
    cancer latin nordic slavic";

/// Endings of such words.
const ORIGIN_ENDS: &[&str] = &[
    "ese", "ish", "nian", "lian", "dian", "sian", "tian", "rian", "zilian", "ican", "inian",
];

/// Words of a post or a time, which are no names.
const NO_NAMES: &str = "\
    head vice president director manager engineering senior chief officer lead engineer christmas \
    easter home night noon work monday tuesday wednesday thursday friday saturday sunday january \
    february march april june july august september october november december ramadan diwali \
    halloween english sales marketing finance legal";

/// What a person does not do for a living.
const NO_ROLES: &str = "\
    rule favor favour team whole joke charm result precaution hobby pair duo couple unit resort way \
    treat consequence family group substitute backup";

type Groups = HashMap<&'static str, &'static str>;

fn groups(lists: &'static [(&'static str, &'static str)]) -> Groups {
    let values = |(group, values): &(&'static str, &'static str)| {
        let group = *group;
        values.split(',').map(move |value| (value.trim(), group))
    };
    lists.iter().flat_map(values).collect()
}

static CATEGORY: LazyLock<Groups> = LazyLock::new(|| groups(CATEGORIES));
static FAMILY: LazyLock<Groups> = LazyLock::new(|| groups(FAMILIES));
static ORIGIN: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| ORIGINS.split_whitespace().collect());
static NO_NAME: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| NO_NAMES.split_whitespace().collect());
static NO_ROLE: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| NO_ROLES.split_whitespace().collect());

/// The category of a value of a "favorite", "default", "status" or similar attribute.
pub(super) fn category(value: &str) -> Option<&'static str> {
    let tint = value
        .strip_prefix("dark ")
        .or_else(|| value.strip_prefix("light "));
    let tinted = tint
        .and_then(|color| CATEGORY.get(color))
        .filter(|c| **c == "color");
    let origin = is_origin(value).then_some("origin");
    tinted
        .or_else(|| CATEGORY.get(value))
        .copied()
        .or(origin)
        .or_else(|| family(value))
}

/// The family of a tool or preference.
pub(super) fn family(value: &str) -> Option<&'static str> {
    FAMILY.get(without_version(value)).copied()
}

/// A version is a detail of the tool: "postgres 16" is of the family of "postgres".
pub(super) fn without_version(value: &str) -> &str {
    value.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ' ')
}

/// Whether it says where something or somebody comes from: what the manager is like, not who it is.
pub(super) fn is_origin(low: &str) -> bool {
    ORIGIN.contains(low) || ORIGIN_ENDS.iter().any(|end| low.ends_with(end))
}

/// Whether a capitalised word is no name: "Ana's boss is Head of Sales", "Mara works at Christmas".
pub(super) fn is_no_name(low: &str) -> bool {
    NO_NAME.contains(low)
}

/// Whether a person does not do this for a living: "works as a team".
pub(super) fn is_no_role(low: &str) -> bool {
    NO_ROLE.contains(low)
}
