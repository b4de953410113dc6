//! Two replicas at once: what each of them is answered is what it would have been answered one after the other, in one order or the other.

use ibex::session::LaneKey;
use ibex::store::shared::SessionCache;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::items::Pair;
use super::model::{Answer, Op, model, op};
use crate::store::fixtures::lanes::key;

/// Races, each on a lane of its own.
const RACES: usize = 10_000;
/// Lanes that are raced on at the same time, so that answers are held up by others.
const AT_ONCE: usize = 8;

/// What is there before two calls race, the two, and everything of the lane afterwards.
#[derive(Debug, Clone)]
struct Race {
    before: Vec<Op>,
    calls: [Op; 2],
}

fn race() -> impl Strategy<Value = Race> {
    let before = prop::collection::vec(op(), 0..3);
    (before, [op(), op()]).prop_map(|(before, calls)| Race { before, calls })
}

fn everything() -> [Op; 2] {
    [Op::Read((0..12).map(|n| (n, n % 4)).collect()), Op::Turns]
}

async fn all(cache: &dyn SessionCache, key: &LaneKey, ops: &[Op]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for op in ops {
        answers.push(op.run(cache, key).await);
    }
    answers
}

impl Race {
    /// The answers of one process if `first` is called before the other one, in the order of the calls, and what is there then.
    async fn in_order(&self, key: &LaneKey, first: usize) -> Vec<Answer> {
        let model = model();
        all(&model, key, &self.before).await;
        let mut answers = [Answer::Nothing, Answer::Nothing];
        for call in [first, 1 - first] {
            answers[call] = self.calls[call].run(&model, key).await;
        }
        let after = all(&model, key, &everything()).await;
        [answers.to_vec(), after].concat()
    }

    async fn run(&self, pair: &Pair, key: &LaneKey) -> Vec<Answer> {
        let [one, other] = &pair.replicas;
        all(one, key, &self.before).await;
        let (first, second) =
            tokio::join!(self.calls[0].run(one, key), self.calls[1].run(other, key));
        let after = all(&pair.fresh(), key, &everything()).await;
        [vec![first, second], after].concat()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_calls_at_once_one_comes_first_in_ten_thousand_races() {
    let pair = Pair::new().await;
    let seed = Config {
        rng_seed: RngSeed::Fixed(7),
        ..Config::default()
    };
    let mut runner = TestRunner::new(seed);
    let mut orders = [0; 3];
    for number in (0..RACES).step_by(AT_ONCE) {
        let races: Vec<(LaneKey, Race)> = (number..number + AT_ONCE)
            .map(|n| {
                let race = race().new_tree(&mut runner).unwrap().current();
                (key(&format!("race-{n}")), race)
            })
            .collect();
        let running = races.iter().map(|(key, race)| race.run(&pair, key));
        let ended = futures_util::future::join_all(running).await;
        for ((key, race), answers) in races.iter().zip(ended) {
            let [first, second] = [race.in_order(key, 0).await, race.in_order(key, 1).await];
            let order = match (answers == first, answers == second) {
                (true, true) => 0,
                (true, false) => 1,
                (false, true) => 2,
                (false, false) => panic!(
                    "{race:#?}\nanswered {answers:#?}\nand neither {first:#?}\nnor {second:#?}"
                ),
            };
            orders[order] += 1;
        }
    }
    // In many races the order matters, and each came first in some of them.
    assert!(orders[1] > 50 && orders[2] > 50, "{orders:?}");
}
