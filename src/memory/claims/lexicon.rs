//! The word lists: which words make a statement something other than a plain present fact, and which say nothing about who is meant.
//!
//! Lists only, no grammar. A word that is missing here costs a question to the classifier; a word that is wrong here could cost a fact,
//! so a doubtful word stands in the list that stops a rule.

use std::collections::HashMap;
use std::sync::LazyLock;

/// There may be two values at once.
const ADDITIVE: &str = "\
    also too another second secondary third additional additionally extra both either other else \
    plus besides addition alongside together well backup alternate alternative alternatively \
    fallback spare shared part part-time side freelance volunteer";
/// Wishes, guesses, plans, reports.
const MODAL: &str = "\
    would could should might must may can shall will going gonna plans planned planning want wants \
    wanted wish wishes hope hopes hoping intend intends consider considers considering think thinks \
    thinking thought believe believes guess guesses suppose supposed supposedly maybe perhaps \
    probably possibly likely unlikely allegedly apparently reportedly seems seemingly heard hears \
    says said say told tells claims claimed mentioned mentions asked asks wonders wonder according \
    rumored if unless whether assuming imagine pretend pretends joked dream dreams dreamed moving \
    soon eventually someday upcoming tentative tentatively proposed suggested draft expected expects \
    estimated target let please try trying tried almost nearly example fictional hypothetical \
    hypothetically simulated temporary temporarily interim acting";
/// Conjunctions and whatever opens a second clause.
const JOINT: &str = "\
    and or but nor yet & + / vs versus who whom which whose where when while whenever wherever \
    because since though although that so then until till before after once as-is except despite \
    otherwise what why how -- - -> => = \u{2014} \u{2013} | where's what's hence therefore however \
    whereas without";
/// Words that point at something outside the text.
const POINTING: &str = "\
    he she they it him her them his hers their theirs its this these those there here you your yours \
    us me mine ours someone somebody something anyone anybody anything everyone everybody everything \
    nobody nothing none same such latter former today tomorrow yesterday tonight next last ago later \
    earlier respectively himself herself itself themselves myself elsewhere somewhere anywhere \
    unknown tbd tba";
/// Quantities, frequencies and approximations.
const VAGUE: &str = "\
    some many several most all every each any few half various multiple certain usually sometimes \
    often mostly mainly rarely typically generally occasionally seldom normally frequently always \
    never ever hardly barely scarcely neither no not only even about around roughly approximately \
    approx circa least less more under up between below above ish partly partially sort kind \
    somewhat etc one non like seasonal seasonally alternately remote remotely back-to-back anymore \
    instead ones";
/// Past forms that are no event of change.
const PAST: &str = "\
    were had did used lived worked preferred_by formerly previously originally initially \
    historically past old previous ex ex- late deceased retired original prior deprecated obsolete \
    archived cancelled canceled abandoned";
/// Function and negation words of other languages. English rules read "De deadline is niet vrijdag" wrongly: better not at all.
const FOREIGN: &str = "\
    niet geen nicht kein keine nie ne pas n\u{e3}o nao nunca jamais ikke inte ej nem ya aucun sin \
    ohne het een der das dem den ein eine ist und oder le les une est et il lo gli una uno un es y \
    os uma um \u{e9} em och och\u{e5} er og op voor met mit avec con com ook auch aussi tamb\u{e9}m \
    tambi\u{e9}n anche nu jetzt zijn haar mijn mein meine wir ich ik je wij onze unser vrijdag \
    maandag freitag montag";
/// Words of time that point from the moment of writing.
const RELATIVE: &str = "\
    today tomorrow yesterday tonight next last ago this later soon recently earlier";
/// Prepositions, which end a value and open a qualifier.
const PREPOSITION: &str = "\
    at on in for during with near by from within per via through across outside inside beside along \
    over to of off into onto than rather against behind throughout toward towards among as opposite \
    past starting effective";
/// Nouns that say nothing about which one is meant.
const GENERIC: &str = "\
    server service database cache application project meeting call team company file script system \
    site website page ticket task issue document report client customer api repository cluster node \
    host machine device event trip flight plan build job worker request response connection session \
    read write retry office room house flat apartment appointment main new current test review ceo \
    cto cfo manager boss neighbour neighbor friend guy man woman person kid child package module \
    component tool product item feature release sprint configuration environment container instance \
    process thread queue user group school class course hotel restaurant store shop car phone laptop \
    game show interview lunch dinner breakfast party exam first big small next proxy gateway \
    frontend backend web internal external default log doctor dentist network table index branch \
    model agent bot assistant department board paper proposal";
/// Relations of which a person has one at a time.
const RELATION: &str = "\
    wife husband spouse mother father mum mom dad boss manager supervisor fianc\u{e9} fianc\u{e9}e \
    fiance fiancee team employer company";
/// Well-known given names.
const GIVEN_NAME: &str = "\
    ana anna ben bob alice carl carla carol chris claire cleo dan daniel dave david diana dalia \
    elena eli ella emil emily emma eric erik eva eve felix fiona frank fred george grace greta hana \
    hannah harry helen henry hugo ian ida idris ines ingrid ivan jack jacob james jan jane jean jim \
    joan joe john jon jonas jose joseph juan julia karen karl kate kevin kim kofi lara laura lea \
    leah lena leo lewis liam lily linda lisa lucas lucy luis luke mara marco maria marie mark martha \
    martin mary matt max mia michael mike mira mona nadia nick nina noah noor nora olga oliver omar \
    oscar pat paul paula pedro peter petra phil priya rachel raj ravi rita robert rosa rose ruth \
    ryan sam sara sarah simon sofia sophie steve sue susan tara ted teo thomas tim tina tom tomas \
    tony vera victor wei yara yuki zara zoe";
/// Labels before a colon that are no person.
const NOTE: &str = "\
    note fyi fact update correction memo";
/// Labels that name a role which many people fill.
const ANONYMOUS: &str = "\
    speaker person customer guest caller patient interviewer agent bot assistant system ai model \
    tool host client anonymous someone question answer summary status deadline reminder todo quote \
    example everyone doctor teacher student them me";

/// Labels before a colon that say what sort of text follows, and so are nobody's name. They matter only before "I" and "my": before
/// anything else no unknown label is dropped.
const NO_SPEAKER: &str = "\
    false true wrong right rumor rumour gossip fiction novel story tale poem song lyrics joke myth legend \
    scene act chapter verse character role plot script draft plan idea concept theory hypothesis assumption \
    scenario option variant alternative sample template test demo case quiz riddle exercise homework \
    translation paraphrase excerpt snippet quote quotation caption headline title subject topic theme \
    heading section slide page abstract conclusion context background history log diary journal entry \
    comment feedback request response reply prompt instruction command rule policy warning caution hint tip \
    bug issue fix feature wip todo done pending status decision agenda minutes notes summary recap \
    reminder message email mail letter text tweet post blog chat dialogue dialog transcript interview \
    dream vision prediction forecast wish goal aim objective challenge problem solution result outcome \
    evidence claim statement assertion argument counterargument objection opinion view belief lie \
    hoax satire parody sarcasm irony retraction erratum disclaimer spoiler summer winter spring autumn \
    fall before after then now today present past future version release step phase stage part week month \
    year day morning evening option choice pros cons general misc other unknown anonymous nobody speaker \
    narrator host me you he she they we i us them context input output user-story sarcastic mock fake \
    obsolete outdated old new invalid incorrect untrue unverified unconfirmed canceled cancelled rejected";
/// What a household, a team or a project has one of, so that "the wifi password" needs no further name.
const SOLE: &str = "\
    wifi wi-fi wlan internet alarm gate garage parking entrance entry lobby building door lockbox safe \
    locker thermostat router modem intercom mailbox office company organization organisation firm business \
    team project website site blog application api shop home house flat apartment school household family \
    kitchen headquarters hq brand logo launch release support helpdesk hotline sales marketing hiring \
    engineering finance hr design legal operations product production staging development dev sandbox \
    admin root guest wedding standup stand-up retro retrospective landlord vpn intranet wiki frontend backend mascot";
/// Things of which the same people meet one after the other: "the invoice deadline" of May is not that of June.
const MANY: &str = "\
    invoice order parcel package shipment delivery booking reservation essay assignment homework exercise \
    message mail contract account member player patient student employee candidate applicant tenant \
    book movie film song album recipe race match round shift sprint milestone step phase stage visit \
    payment purchase refund transaction claim complaint request incident error bug discount coupon promo \
    voucher gift shirt dress ring shoe child lesson lecture seminar workshop conference talk session ticket flight train \
    bus meeting event trip appointment exam class show game interview lunch dinner breakfast party local national \
    foreign official native hotel hostel airbnb rental guesthouse restaurant cafe room";
/// Things of which "the" one is meant, and nothing but their place or hour is asked for.
const SINGLE: &str = "\
    office headquarters hq standup stand-up retro retrospective all-hands";

/// The lists in the order of their bits.
const LISTS: &[&str] = &[
    ADDITIVE,
    MODAL,
    JOINT,
    POINTING,
    VAGUE,
    PAST,
    FOREIGN,
    RELATIVE,
    PREPOSITION,
    GENERIC,
    RELATION,
    GIVEN_NAME,
    NOTE,
    ANONYMOUS,
    NO_SPEAKER,
    SOLE,
    MANY,
    SINGLE,
];

/// Each word with a bit for each list that has it.
static WORDS: LazyLock<HashMap<&'static str, u32>> = LazyLock::new(|| {
    let mut words = HashMap::with_capacity(1024);
    for (bit, list) in LISTS.iter().enumerate() {
        for word in list.split_whitespace() {
            *words.entry(word).or_insert(0) |= 1 << bit;
        }
    }
    words
});

/// The places of the lists in [`LISTS`].
const IN_ADDITIVE: u32 = 1 << 0;
const IN_MODAL: u32 = 1 << 1;
const IN_JOINT: u32 = 1 << 2;
const IN_POINTING: u32 = 1 << 3;
const IN_VAGUE: u32 = 1 << 4;
const IN_PAST: u32 = 1 << 5;
const IN_FOREIGN: u32 = 1 << 6;
const IN_RELATIVE: u32 = 1 << 7;
const IN_PREPOSITION: u32 = 1 << 8;
const IN_GENERIC: u32 = 1 << 9;
const IN_RELATION: u32 = 1 << 10;
const IN_GIVEN_NAME: u32 = 1 << 11;
const IN_NOTE: u32 = 1 << 12;
const IN_ANONYMOUS: u32 = 1 << 13;
const IN_NO_SPEAKER: u32 = 1 << 14;
const IN_SOLE: u32 = 1 << 15;
const IN_MANY: u32 = 1 << 16;
const IN_SINGLE: u32 = 1 << 17;
const BARRED: u32 = IN_MODAL | IN_JOINT | IN_POINTING | IN_VAGUE | IN_PAST | IN_FOREIGN;

fn is_in(low: &str, lists: u32) -> bool {
    WORDS.get(low).is_some_and(|bits| bits & lists != 0)
}

/// What a word does to the statement it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing.
    Pass,
    /// "also", "too", "another": there may be two values at once.
    Additive,
    /// Anything that makes it a wish, a guess, a report, a past, a question or several clauses.
    Bar,
}

/// What `low` does to the statement it stands in.
pub(super) fn gate(low: &str) -> Gate {
    match WORDS.get(low) {
        Some(bits) if bits & IN_ADDITIVE != 0 => Gate::Additive,
        Some(bits) if bits & BARRED != 0 => Gate::Bar,
        Some(_) | None => Gate::Pass,
    }
}

/// Whether it is a word of time that points from the moment of writing.
pub(super) fn is_relative_time(low: &str) -> bool {
    is_in(low, IN_RELATIVE)
}

/// Whether it is a preposition, which ends a value and opens a qualifier.
pub(super) fn is_preposition(low: &str) -> bool {
    is_in(low, IN_PREPOSITION)
}

/// Whether it says nothing about which one is meant: "the server", "the CEO". A subject of such words alone names nobody.
pub(super) fn is_generic(low: &str) -> bool {
    is_in(low, IN_GENERIC)
}

/// Whether a person has one of these at a time.
pub(super) fn is_unique_relation(low: &str) -> bool {
    is_in(low, IN_RELATION)
}

/// Whether it is a well-known given name: "works for Ben" names a boss, not an employer.
pub(super) fn is_given_name(low: &str) -> bool {
    is_in(low, IN_GIVEN_NAME)
}

/// Whether a label before a colon is no person.
pub(super) fn is_note_label(low: &str) -> bool {
    is_in(low, IN_NOTE)
}

/// Whether a label names a role which many people fill: "I" under it is nobody in particular.
pub(super) fn is_anonymous_label(low: &str) -> bool {
    low.chars().count() < 2 || low.bytes().any(|b| b.is_ascii_digit()) || is_in(low, IN_ANONYMOUS)
}

/// Whether a label says what sort of text follows, and is nobody's name.
pub(super) fn is_no_speaker(low: &str) -> bool {
    is_in(low, IN_NO_SPEAKER)
}

/// Whether a household, a team or a project has one of it.
pub(super) fn is_sole(low: &str) -> bool {
    is_in(low, IN_SOLE)
}

/// Whether the same people meet one after the other of it, so that "the" does not tell which.
pub(super) fn is_many(low: &str) -> bool {
    is_in(low, IN_MANY | IN_GENERIC) && !is_sole(low)
}

/// Whether one comes after the other, so that not even a name or a place beside it tells which: "the Porto flight".
pub(super) fn is_passing(low: &str) -> bool {
    is_in(low, IN_MANY)
}

/// Whether "the" one is meant where no other word says which.
pub(super) fn is_single(low: &str) -> bool {
    is_in(low, IN_SINGLE)
}
