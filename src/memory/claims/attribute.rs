//! The nouns that take one value at a time ("port", "phone number", "favorite color"), with the sort of value and of owner they have.

use std::borrow::Cow;

use super::value::Shape;

/// What may have the attribute without saying which one of several is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// A person has one; of a thing it is also said.
    Either,
    /// Only of a person.
    Person,
    /// Only of a named thing. "Mara's deadline" is one of many.
    Thing,
}

/// An attribute found at the end of a noun phrase.
#[derive(Clone, Debug)]
pub(super) struct Attribute {
    /// Its canonical name.
    pub(super) name: Cow<'static, str>,
    /// What its values look like.
    pub(super) shape: Shape,
    /// What can have it.
    pub(super) scope: Scope,
    /// How many words of the phrase it took.
    pub(super) len: usize,
}

/// Words before an attribute of a person that make it another attribute: a home phone is not a work phone.
const MODIFIERS: &[&str] = &[
    "home",
    "work",
    "personal",
    "private",
    "business",
    "billing",
    "shipping",
    "mailing",
    "emergency",
    "company",
];

/// Words that make any noun after them an attribute.
const MAKERS: &[&str] = &["favorite", "preferred", "default", "primary"];

/// What a scope has one default of. "The default port" is the default of something.
const DEFAULTS: &[&str] = &[
    "branch", "currency", "language", "database", "timezone", "browser", "editor", "shell",
    "theme", "license",
];

/// Attributes that a scope has one of.
const ALONE: &[&str] = &[
    "budget",
    "database",
    "framework",
    "currency",
    "timezone",
    "rent",
    "codename",
    "launch date",
    "release date",
    "ceo",
    "cto",
    "cfo",
    "coo",
    "landlord",
    "tech lead",
    "product owner",
    "alarm code",
    "ci system",
    "issue tracker",
    "package manager",
    "cloud provider",
    "hosting provider",
    "internet provider",
    "payment provider",
];

/// The attribute that the canonical words of a noun phrase end in.
pub(super) fn find(words: &[&str]) -> Option<Attribute> {
    if let Some(made) = made(words) {
        return Some(made);
    }
    let (rest, last) = words.split_last().map(|(last, rest)| (rest, *last))?;
    let before = rest.last().copied().unwrap_or_default();
    if let Some((name, shape, scope)) = pair(before, last) {
        return Some(Attribute {
            name: name.into(),
            shape,
            scope,
            len: 2,
        });
    }
    let (name, shape, scope) = single(last)
        .or_else(|| post(last))
        .or_else(|| described(last))?;
    let modified = matches!(shape, Shape::Phone | Shape::Email | Shape::Address)
        && MODIFIERS.contains(&before);
    if modified {
        return Some(Attribute {
            name: format!("{before} {name}").into(),
            shape,
            scope,
            len: 2,
        });
    }
    Some(Attribute {
        name: name.into(),
        shape,
        scope,
        len: 1,
    })
}

/// Whether "the" is enough to say which one is meant: a scope has one budget that is called just that, but many codes, names, ports and
/// deadlines.
pub(super) fn stands_alone(name: &str) -> bool {
    let settings = ["default ", "primary "].iter();
    if let Some(setting) = settings.filter_map(|maker| name.strip_prefix(maker)).next() {
        return DEFAULTS.contains(&setting);
    }
    ALONE.contains(&name)
}

/// Whether somebody has several of it, so that "my password" does not say which: it takes a thing that it belongs to.
pub(super) fn needs_thing(name: &str) -> bool {
    let secret = name.ends_with("code") && name != "alarm code";
    secret
        || matches!(
            name,
            "pin" | "combination" | "password" | "date" | "time" | "fee"
        )
}

/// "favorite color", "default branch".
fn made(words: &[&str]) -> Option<Attribute> {
    let at = words.iter().position(|w| MAKERS.contains(w))?;
    let tail = words.get(at..)?;
    let maker = tail.first().copied()?;
    if !(2..=4).contains(&tail.len()) {
        return None;
    }
    let personal = matches!(maker, "favorite" | "preferred");
    let scope = if personal {
        Scope::Person
    } else {
        Scope::Thing
    };
    // A default timeout is an amount like any timeout.
    let noun = tail.last().copied().unwrap_or_default();
    let shape = single(noun).map_or(Shape::Words, |(_, shape, _)| shape);
    let shape = if shape == Shape::Choice || personal {
        Shape::Words
    } else {
        shape
    };
    Some(Attribute {
        name: tail.join(" ").into(),
        shape,
        scope,
        len: tail.len(),
    })
}

fn pair(before: &str, last: &str) -> Option<(&'static str, Shape, Scope)> {
    Some(match (before, last) {
        ("phone" | "telephone", "number") => ("phone", Shape::Phone, Scope::Either),
        ("mobile" | "cell", "number" | "phone") => ("mobile", Shape::Phone, Scope::Person),
        ("email", "address") => ("email", Shape::Email, Scope::Either),
        ("ip", "address") => ("ip address", Shape::Link, Scope::Thing),
        ("job", "title") => ("role", Shape::Words, Scope::Person),
        ("full" | "first" | "last" | "middle", "name") => {
            (full_name(before), Shape::Name, Scope::Person)
        }
        ("shoe" | "shirt" | "ring" | "dress", "size") => {
            (worn_size(before), Shape::Words, Scope::Person)
        }
        ("blood", "type") => ("blood type", Shape::Words, Scope::Person),
        ("time", "zone") => ("timezone", Shape::Words, Scope::Either),
        ("due", "date") => ("deadline", Shape::When, Scope::Thing),
        ("launch", "date") => ("launch date", Shape::When, Scope::Thing),
        ("release", "date") => ("release date", Shape::When, Scope::Thing),
        ("start", "date") => ("start date", Shape::When, Scope::Thing),
        ("end", "date") => ("end date", Shape::When, Scope::Thing),
        ("tech", "lead") => ("tech lead", Shape::Person, Scope::Thing),
        ("replica", "count") => ("replica count", Shape::Amount, Scope::Thing),
        ("retention", "period") => ("retention period", Shape::Amount, Scope::Thing),
        ("batch", "size") => ("batch size", Shape::Amount, Scope::Thing),
        ("rate", "limit") => ("rate limit", Shape::Amount, Scope::Thing),
        ("log", "level") => ("log level", Shape::Words, Scope::Thing),
        ("log", "format") => ("log format", Shape::Words, Scope::Thing),
        ("product", "owner") => ("product owner", Shape::Person, Scope::Either),
        ("head", "coach") => ("coach", Shape::Person, Scope::Thing),
        ("access" | "entry" | "security" | "alarm", "code") => {
            (secret(before), Shape::Code, Scope::Either)
        }
        ("pin", "code") => ("pin", Shape::Code, Scope::Either),
        ("tax" | "vat" | "fax" | "registration", "number") => {
            (registered(before), Shape::Code, Scope::Either)
        }
        ("ci", "system" | "server" | "tool") => ("ci system", Shape::Tool, Scope::Either),
        ("issue" | "bug", "tracker") => ("issue tracker", Shape::Tool, Scope::Either),
        ("package" | "password" | "window", "manager") => {
            (software(before), Shape::Tool, Scope::Either)
        }
        ("cloud" | "hosting" | "internet" | "payment", "provider") => {
            (provider(before), Shape::Tool, Scope::Either)
        }
        _ => return None,
    })
}

fn secret(before: &str) -> &'static str {
    match before {
        "access" => "access code",
        "entry" => "entry code",
        "security" => "security code",
        _ => "alarm code",
    }
}

fn registered(before: &str) -> &'static str {
    match before {
        "tax" => "tax number",
        "vat" => "vat number",
        "fax" => "fax number",
        _ => "registration number",
    }
}

fn software(before: &str) -> &'static str {
    match before {
        "package" => "package manager",
        "password" => "password manager",
        _ => "window manager",
    }
}

fn provider(before: &str) -> &'static str {
    match before {
        "cloud" => "cloud provider",
        "hosting" => "hosting provider",
        "internet" => "internet provider",
        _ => "payment provider",
    }
}

fn full_name(before: &str) -> &'static str {
    match before {
        "first" => "first name",
        "last" => "last name",
        "middle" => "middle name",
        _ => "full name",
    }
}

fn worn_size(before: &str) -> &'static str {
    match before {
        "shoe" => "shoe size",
        "shirt" => "shirt size",
        "ring" => "ring size",
        _ => "dress size",
    }
}

fn single(last: &str) -> Option<(&'static str, Shape, Scope)> {
    Some(match last {
        "name" => ("name", Shape::Name, Scope::Either),
        "email" => ("email", Shape::Email, Scope::Either),
        "phone" | "telephone" => ("phone", Shape::Phone, Scope::Either),
        "mobile" => ("mobile", Shape::Phone, Scope::Person),
        "address" => ("address", Shape::Address, Scope::Either),
        "age" => ("age", Shape::Age, Scope::Person),
        "birthday" | "birthdate" => ("birthday", Shape::When, Scope::Person),
        "height" => ("height", Shape::Amount, Scope::Either),
        "weight" => ("weight", Shape::Amount, Scope::Either),
        "salary" => ("salary", Shape::Amount, Scope::Person),
        "rent" => ("rent", Shape::Amount, Scope::Either),
        "hometown" => ("hometown", Shape::Place, Scope::Person),
        "employer" => ("employer", Shape::Organisation, Scope::Person),
        "manager" | "boss" | "supervisor" => ("manager", Shape::Person, Scope::Either),
        "wife" | "husband" | "spouse" => ("spouse", Shape::Person, Scope::Person),
        "timezone" => ("timezone", Shape::Words, Scope::Either),
        "role" | "occupation" => ("role", Shape::Words, Scope::Person),
        "owner" => ("owner", Shape::Owner, Scope::Thing),
        "lead" => ("lead", Shape::Person, Scope::Thing),
        "port" => ("port", Shape::Port, Scope::Thing),
        "version" => ("version", Shape::Version, Scope::Thing),
        "url" => ("url", Shape::Link, Scope::Thing),
        "endpoint" => ("endpoint", Shape::Link, Scope::Thing),
        "hostname" => ("hostname", Shape::Link, Scope::Thing),
        "ip" => ("ip address", Shape::Link, Scope::Thing),
        "domain" => ("domain", Shape::Link, Scope::Thing),
        "region" => ("region", Shape::Link, Scope::Thing),
        "status" => ("status", Shape::Words, Scope::Thing),
        "deadline" => ("deadline", Shape::When, Scope::Thing),
        "budget" => ("budget", Shape::Amount, Scope::Thing),
        "price" | "cost" => ("price", Shape::Amount, Scope::Thing),
        "timeout" => ("timeout", Shape::Amount, Scope::Thing),
        "limit" => ("limit", Shape::Amount, Scope::Thing),
        "quota" => ("quota", Shape::Amount, Scope::Thing),
        "capacity" => ("capacity", Shape::Amount, Scope::Thing),
        "size" => ("size", Shape::Amount, Scope::Thing),
        "threshold" => ("threshold", Shape::Amount, Scope::Thing),
        "interval" => ("interval", Shape::Amount, Scope::Thing),
        "ttl" => ("ttl", Shape::Amount, Scope::Thing),
        "priority" => ("priority", Shape::Words, Scope::Thing),
        "severity" => ("severity", Shape::Words, Scope::Thing),
        "color" => ("color", Shape::Words, Scope::Thing),
        "codename" => ("codename", Shape::Name, Scope::Thing),
        "location" => ("location", Shape::Location, Scope::Thing),
        "license" => ("license", Shape::Words, Scope::Thing),
        "venue" => ("venue", Shape::Name, Scope::Thing),
        _ => return None,
    })
}

/// Posts that one person holds at a time. A player may have several coaches, a team has one.
fn post(last: &str) -> Option<(&'static str, Shape, Scope)> {
    let (name, scope) = match last {
        "ceo" => ("ceo", Scope::Either),
        "cto" => ("cto", Scope::Either),
        "cfo" => ("cfo", Scope::Either),
        "coo" => ("coo", Scope::Either),
        "president" => ("president", Scope::Either),
        "chair" | "chairman" | "chairwoman" | "chairperson" => ("chair", Scope::Either),
        "mayor" => ("mayor", Scope::Either),
        "principal" | "headmaster" | "headmistress" => ("principal", Scope::Either),
        "landlord" | "landlady" => ("landlord", Scope::Either),
        "accountant" => ("accountant", Scope::Either),
        "director" => ("director", Scope::Thing),
        "head" => ("head", Scope::Thing),
        "captain" => ("captain", Scope::Thing),
        "coach" => ("coach", Scope::Thing),
        "treasurer" => ("treasurer", Scope::Thing),
        "maintainer" => ("maintainer", Scope::Thing),
        _ => return None,
    };
    Some((name, Shape::Person, scope))
}

/// Nouns of which a described thing ("the wifi", "the front door") has one.
fn described(last: &str) -> Option<(&'static str, Shape, Scope)> {
    Some(match last {
        "code" | "passcode" => ("code", Shape::Code, Scope::Either),
        "pin" => ("pin", Shape::Code, Scope::Either),
        "combination" => ("combination", Shape::Code, Scope::Either),
        "password" | "passphrase" => ("password", Shape::Code, Scope::Either),
        "ssid" => ("name", Shape::Name, Scope::Either),
        "branch" => ("branch", Shape::Words, Scope::Thing),
        "database" => ("database", Shape::Tool, Scope::Either),
        "editor" => ("editor", Shape::Tool, Scope::Either),
        "browser" => ("browser", Shape::Tool, Scope::Either),
        "shell" => ("shell", Shape::Tool, Scope::Either),
        "framework" => ("framework", Shape::Tool, Scope::Thing),
        "currency" => ("currency", Shape::Words, Scope::Either),
        "language" => ("language", Shape::Words, Scope::Thing),
        "capital" => ("capital", Shape::Name, Scope::Either),
        "date" => ("date", Shape::When, Scope::Thing),
        "time" => ("time", Shape::When, Scope::Thing),
        "fee" => ("fee", Shape::Amount, Scope::Thing),
        "mascot" => ("mascot", Shape::Words, Scope::Either),
        _ => return None,
    })
}
