//! Facts as agents remember them: of many topics, people and places, and each with a question that asks for it.

use std::fmt::Write;

/// The kinds of things that people have to do with, a topic a line.
const TOPICS: [&str; 20] = [
    "invoice, refund, receipt, payment, credit note, tax form, discount, bank transfer, late fee, price list, deposit, budget",
    "parcel, pallet, container, customs paper, courier, shipping label, warehouse, forklift, tracking number, return slip, cargo, depot",
    "laptop, keyboard, printer, monitor, router, headset, docking station, charger, webcam, projector, server rack, spare disk",
    "deployment, database, backup, log file, certificate, load balancer, cache, pipeline, container image, firewall rule, cron job, index",
    "contract, clause, signature, court date, patent, licence, notary, witness, settlement, appeal, lease, warranty",
    "flight, hotel room, train ticket, passport, visa, suitcase, rental car, boarding pass, layover, itinerary, ferry, airport lounge",
    "recipe, sourdough, olive oil, soup, cheese board, espresso, curry, salad, birthday cake, noodles, oat milk, cutting board",
    "vaccination, blood test, prescription, allergy, physiotherapy, dentist, insurance card, x-ray, diet plan, sleep study, clinic, inhaler",
    "tomato bed, greenhouse, lawn mower, rose bush, compost, apple tree, garden hose, bird feeder, fence, seedling, pruning shears, pond",
    "bicycle, scooter, winter tyre, brake pad, parking permit, engine oil, charging cable, windscreen, helmet, roof rack, garage, number plate",
    "violin, choir, drum kit, concert ticket, sheet music, piano lesson, guitar string, record player, playlist, microphone, orchestra, saxophone",
    "homework, exam, school bus, teacher, report card, chemistry set, library card, scholarship, lecture, thesis, notebook, kindergarten",
    "marathon, running shoe, swimming pool, yoga mat, tennis court, football match, climbing rope, gym membership, ski pass, rowing boat, training plan, referee",
    "kitchen sink, boiler, roof tile, paint, light switch, wallpaper, dishwasher, carpet, bathtub, door lock, window frame, radiator",
    "newsletter, landing page, survey, press release, logo, billboard, podcast, trade fair, brochure, slogan, sponsor, hashtag",
    "job interview, payslip, vacation request, onboarding, pension, badge, team lunch, parental leave, promotion, shift plan, reference letter, timesheet",
    "lathe, conveyor belt, safety goggle, welding robot, gearbox, inspection, spare part, assembly line, drill, coolant, blueprint, pressure valve",
    "kitten, dog leash, aquarium, vet visit, parrot, horse stable, rabbit hutch, cat food, microchip, puppy class, saddle, terrarium",
    "novel, museum, film script, photo album, sculpture, poetry reading, theatre, sketchbook, exhibition, comic, camera lens, easel",
    "heat pump, solar panel, wind turbine, meter reading, power outage, gas bill, insulation, battery, transformer, smart meter, tariff, fuse box",
];
const FIRST: &str = "Ada, Amir, Anna, Bela, Bruno, Carla, Chen, Clara, Dario, Dora, Elif, Emil, Esther, Farid, Felix, Greta, Hana, Hugo, Ida, \
    Igor, Ines, Ivan, Jana, Jonas, Kai, Kira, Lars, Leila, Luca, Maja, Marek, Mei, Milan, Nadia, Nils, Noor, Olga, Omar, Petra, \
    Pia, Rafael, Rosa, Samir, Sofia, Tariq, Uma, Viktor, Yuki";
const LAST: &str = "Abbas, Acker, Baros, Bauer, Castillo, Costa, Dietrich, Dvorak, Eriksen, Farouk, Ferrari, Fischer, Garcia, Haas, Hoffmann, \
    Ibrahim, Ito, Jansen, Kaya, Kowalski, Lindqvist, Lopez, Marino, Meyer, Moreau, Nakamura, Novak, Okafor, Olsen, Pavlov, Quist, \
    Ricci, Santos, Schmidt, Singh, Tanaka, Vogel, Weber, Yilmaz, Zhang";
const PLACES: &str = "Aarhus, Antwerp, Bergen, Bilbao, Bologna, Bremen, Brno, Cork, Dresden, Dundee, Faro, Galway, Gdansk, Genoa, Ghent, Graz, \
    Haifa, Izmir, Kobe, Krakow, Leeds, Lille, Linz, Lyon, Malmo, Nantes, Odense, Osaka, Ostrava, Porto, Riga, Rijeka, Seville, \
    Split, Tampere, Tartu, Turin, Utrecht, Varna, Zagreb";
const KINDS: &str = "blue, broken, cheap, digital, early, extra, fragile, green, heavy, hidden, large, missing, new, old, plain, private, quiet, \
    red, second, shared, small, temporary, urgent, wooden";
const DAYS: &str = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday";

/// A fact, and what somebody asks who wants to know it.
pub(crate) struct Fact {
    pub(crate) text: String,
    pub(crate) question: String,
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`.
    #[expect(clippy::cast_possible_truncation, reason = "it is below `most`")]
    pub(crate) fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    /// One of a list with commas.
    fn pick(&mut self, from: &'static str) -> &'static str {
        let most = from.split(", ").count();
        from.split(", ").nth(self.below(most)).unwrap_or_default()
    }
}

/// The fact of number `i`, of one of the `breadth` topics that number `owner` has to do with.
pub(crate) fn fact(i: usize, owner: usize, breadth: usize) -> Fact {
    let mut dice = Dice::new(i as u64);
    let topic = (owner * 7 + dice.below(breadth) * 3) % TOPICS.len();
    let things = TOPICS.get(topic).copied().unwrap_or_default();
    let (thing, other, kind) = (dice.pick(things), dice.pick(things), dice.pick(KINDS));
    let (who, friend) = (person(&mut dice), person(&mut dice));
    let (place, day, n) = (dice.pick(PLACES), dice.pick(DAYS), 2 + dice.below(900));
    let (text, question) = match dice.below(8) {
        0 => (
            format!("{who} keeps the {kind} {thing} in {place}, on shelf {n} next to the {other}."),
            format!("Where does {who} keep the {thing}?"),
        ),
        1 => (
            format!(
                "The {kind} {thing} that {who} ordered from {place} arrives on {day} and costs {n} euros."
            ),
            format!("When does the {thing} arrive that {who} ordered, and what does it cost?"),
        ),
        2 => (
            format!(
                "{who} prefers a {kind} {thing} to the {other} that {friend} recommended in {place}."
            ),
            format!("What kind of {thing} does {who} like better than the {other}?"),
        ),
        3 => (
            format!(
                "In {place} the {thing} stopped working after {who} changed the {other}; {friend} fixed it within {n} minutes."
            ),
            format!("Who repaired the {thing} in {place} after {who} had changed something?"),
        ),
        4 => (
            format!(
                "{who} and {friend} agreed to look at the {kind} {thing} every {day} before the call with {place}."
            ),
            format!("How often do {who} and {friend} check the {thing}?"),
        ),
        5 => (
            format!(
                "{who} is afraid that the {thing} will be too {kind} for {friend}, who has only {n} of the {other} left."
            ),
            format!("What worries {who} about the {thing} for {friend}?"),
        ),
        6 => (
            format!(
                "Do not send the {thing} to {friend}: {who} decides about everything {kind} in {place} since last {day}."
            ),
            format!("Who decides about the {thing} in {place} instead of {friend}?"),
        ),
        _ => (
            format!(
                "{who} lost the {kind} {thing} on the way to {place} and borrowed a {other} from {friend} until {day}."
            ),
            format!("What did {who} borrow from {friend} when the {thing} was lost?"),
        ),
    };
    Fact { text, question }
}

fn person(dice: &mut Dice) -> String {
    let mut name = dice.pick(FIRST).to_owned();
    // Some are known by their first name only.
    if dice.below(4) > 0 {
        write!(name, " {}", dice.pick(LAST)).ok();
    }
    name
}
