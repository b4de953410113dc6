//! Operations, and what the process's own cache answers to them: the measure of every answer here.

use std::sync::Arc;

use ibex::config::SessionConfig;
use ibex::session::{LaneKey, Opening, Outcome, Turn};
use ibex::store::shared::{BlockFate, CacheError, InProcess, SessionCache};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::{Config, TestRunner};

use super::items::Pair;
use crate::store::fixtures::lanes::{block_at, id, key, opening, sent, turn};

/// Turns with what they got: chain, anchor, memories, state, revision.
type Given = Vec<(u8, u8, Vec<u8>, bool, i64)>;

/// One call.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Read(Vec<(u8, u8)>),
    Restore(u32, u32, Vec<u8>, Given),
    Open(u32, u32, Vec<u8>, Given),
    Settle(u32, Given),
    Rotate(u32, u32, u32, Vec<u8>, BlockFate),
    Turns,
    Checked(i64, usize),
    Sent(u8),
}

/// What a call answered, and whether a Region A is the very one that was given.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Nothing,
    Rotated,
    Held(Option<String>),
    Opened(bool, Opening, Vec<Outcome>),
    Settled(Vec<Outcome>),
    Turns(Vec<(Turn, Outcome)>),
}

fn turns() -> impl Strategy<Value = Vec<(u8, u8)>> {
    // Few anchors, so that many turns have the same one.
    let turn = (0..12_u8, 0..4_u8);
    prop::collection::vec(turn, 0..7)
}

fn memories() -> impl Strategy<Value = Vec<u8>> {
    subsequence(vec![1, 2, 3, 4], 0..=3)
}

fn given() -> impl Strategy<Value = Given> {
    let one = (0..12_u8, 0..4_u8, memories(), any::<bool>(), 0..9_i64);
    prop::collection::vec(one, 0..5)
}

fn fate() -> impl Strategy<Value = BlockFate> {
    let without = |gone: Vec<u8>| BlockFate::Without(gone.into_iter().map(id).collect());
    prop_oneof![
        1 => Just(BlockFate::Keep),
        1 => Just(BlockFate::Drop),
        3 => memories().prop_map(without),
    ]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let (epoch, nonce) = (1..4_u32, 1..3_u32);
    prop_oneof![
        4 => turns().prop_map(Op::Read),
        1 => (epoch.clone(), nonce.clone(), memories(), given()).prop_map(|(e, n, m, g)| Op::Restore(e, n, m, g)),
        2 => (epoch.clone(), nonce.clone(), memories(), given()).prop_map(|(e, n, m, g)| Op::Open(e, n, m, g)),
        4 => (nonce.clone(), given()).prop_map(|(n, g)| Op::Settle(n, g)),
        2 => (epoch, nonce, memories(), fate()).prop_map(|(e, n, m, f)| Op::Rotate(e, e + 1, n, m, f)),
        1 => Just(Op::Turns),
        1 => (0..12_i64, 0..8_usize).prop_map(|(r, t)| Op::Checked(r, t)),
        1 => (0..9_u8).prop_map(Op::Sent),
    ]
}

fn outcomes(key: &LaneKey, given: &Given) -> Vec<(Turn, Outcome)> {
    let outcome = |(chain, anchor, memories, state, revision): &(u8, u8, Vec<u8>, bool, i64)| {
        let outcome = block_at(key, memories, *state, *revision);
        (turn(*chain, *anchor), outcome)
    };
    given.iter().map(outcome).collect()
}

impl Op {
    /// Calls `cache`.
    pub(super) async fn run(&self, cache: &dyn SessionCache, key: &LaneKey) -> Answer {
        let given = |epoch, nonce, snapshot: &[u8]| opening(key, epoch, nonce, snapshot);
        let answer = match self {
            Self::Read(turns) => {
                let turns: Vec<Turn> = turns.iter().map(|(c, a)| turn(*c, *a)).collect();
                let held = cache.read(key, &turns).await;
                held.map(|held| Answer::Held(held.map(|held| format!("{held:?}"))))
            }
            Self::Restore(epoch, nonce, snapshot, turns) => {
                let (opening, turns) = (given(*epoch, *nonce, snapshot), outcomes(key, turns));
                let restored = cache.restore(key, opening, turns).await;
                restored.map(|()| Answer::Nothing)
            }
            Self::Open(epoch, nonce, snapshot, turns) => {
                let (opening, turns) = (given(*epoch, *nonce, snapshot), outcomes(key, turns));
                let opened = cache.open(key, Arc::clone(&opening), turns).await;
                opened.map(|(held, settled)| {
                    let own = Arc::ptr_eq(&held, &opening);
                    Answer::Opened(own, Opening::clone(&held), settled)
                })
            }
            Self::Settle(nonce, turns) => {
                let settled = cache.settle(key, *nonce, outcomes(key, turns)).await;
                settled.map(Answer::Settled)
            }
            Self::Rotate(from, epoch, nonce, snapshot, fate) => {
                let opening = given(*epoch, *nonce, snapshot);
                let rotating = cache.rotate(key, *from, Arc::clone(&opening), fate.clone());
                rotating.await.map(|held| {
                    let own = Arc::ptr_eq(&held, &opening);
                    Answer::Opened(own, Opening::clone(&held), Vec::new())
                })
            }
            Self::Turns => cache.turns(key).await.map(Answer::Turns),
            Self::Checked(revision, turns) => {
                let noted = cache.checked(key, *revision, *turns).await;
                noted.map(|()| Answer::Nothing)
            }
            Self::Sent(n) => {
                let noted = cache.sent(key, sent(*n)).await;
                noted.map(|()| Answer::Nothing)
            }
        };
        match answer {
            Ok(answer) => answer,
            Err(CacheError::Rotated) => Answer::Rotated,
            Err(CacheError::Unavailable(why)) => panic!("{self:?}: {why}"),
        }
    }
}

/// A cache that says what should come out.
pub(super) fn model() -> InProcess {
    InProcess::new(&SessionConfig::default())
}

#[test]
fn whichever_replica_is_called_the_answers_are_those_of_one_process() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pair = tokio::sync::Mutex::new(runtime.block_on(Pair::new()));
    let mut runner = TestRunner::new(Config::with_cases(400));
    let calls = prop::collection::vec((op(), 0..2_usize), 1..25);
    let lane = std::cell::Cell::new(0);
    let outcome = runner.run(&calls, |calls| {
        lane.set(lane.get() + 1);
        let key = key(&format!("lane-{}", lane.get()));
        runtime.block_on(async {
            let mut pair = pair.lock().await;
            let model = model();
            for (number, (op, replica)) in calls.iter().enumerate() {
                let expected = op.run(&model, &key).await;
                let answer = op.run(&pair.replicas[*replica], &key).await;
                prop_assert_eq!(&answer, &expected, "call {}: {:?}", number, op);
                let left = pair.left(&key).await;
                // -2 is no key at all.
                prop_assert!(
                    left == -2 || (1..=2_700_000).contains(&left),
                    "{}: {}",
                    number,
                    left
                );
            }
            // A replica that was not there before says the same.
            let all = Op::Read((0..12).map(|n| (n, n % 4)).collect());
            let expected = all.run(&model, &key).await;
            prop_assert_eq!(all.run(&pair.fresh(), &key).await, expected);
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
