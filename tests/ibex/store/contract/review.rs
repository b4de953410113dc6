//! What waits for a person: open questions, turns that could not be captured, and where either is.

use ibex::ids::AgentId;
use ibex::memory::{Memory, PartitionKey, Status};
use ibex::store::{
    DeadLetter, Decider, Effect, Escalation, EscalationStatus, Relation, Settlement, StoreError,
};

use super::Backend;
use crate::store::fixtures::drafts::{decided, judged, read};
use crate::store::fixtures::{Engine, insert, memory, new_agent, new_partition, of_user, time};

const GUESS: Relation = Relation::Contradiction;

/// Two memories of a partition that nobody can tell apart; the second one begins at second 10.
async fn question(store: &dyn Engine, own: &PartitionKey, n: u32) -> (Memory, Memory) {
    let older = memory(own, &format!("older {n}"));
    insert(store, older.clone()).await;
    let newer = Memory {
        valid_from: time(10),
        updated_at: time(20),
        ..memory(own, &format!("newer {n}"))
    };
    let verdict = judged(&older, Effect::Escalate { guess: GUESS });
    decided(store, &newer, vec![verdict]).await;
    (newer, older)
}

async fn pending(store: &dyn Engine, own: &PartitionKey) -> Vec<Escalation> {
    let own = std::slice::from_ref(own);
    store.escalations(own, None, 10).await.unwrap()
}

async fn status(store: &dyn Engine, escalation: &Escalation) -> Option<EscalationStatus> {
    let own = std::slice::from_ref(&escalation.partition);
    let found = store.escalation(own, escalation.id).await.unwrap();
    found.map(|escalation| escalation.status)
}

pub(crate) async fn an_open_question_is_settled_once(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = of_user(&new_partition(&*store).await, "ann");
    let (newer, older) = question(&*store, &own, 1).await;
    let asked = pending(&*store, &own).await.remove(0);
    let expected = Escalation {
        id: asked.id,
        partition: own.clone(),
        newer: newer.id,
        older: older.id,
        guess: GUESS,
        status: EscalationStatus::Pending,
        created_at: time(20),
    };
    assert_eq!(asked, expected);
    let bob = [of_user(&own, "bob")];
    assert_eq!(store.escalation(&bob, asked.id).await.unwrap(), None);
    assert_eq!(store.escalations(&bob, None, 10).await.unwrap(), []);
    let before = store.revision().await.unwrap();
    let replaced = Some((Relation::Supersedes, Decider::Person));
    let settle = async |decision| {
        let settled = store.settle_escalation(&asked, decision, time(30));
        settled.await.unwrap()
    };
    assert_eq!(settle(replaced).await, Settlement::Settled);
    let over = read(&*store, &older).await;
    assert_eq!(
        (over.status, over.valid_until, over.updated_at),
        (Status::Superseded, Some(time(10)), time(30))
    );
    assert_eq!(over.revision, before + 1, "caches hear of it");
    assert_eq!(read(&*store, &newer).await.status, Status::Active);
    let relations = store.relations(&own, newer.id).await.unwrap();
    assert_eq!(relations.len(), 1);
    assert_eq!(
        (relations[0].target, relations[0].relation, relations[0].by),
        (older.id, Relation::Supersedes, Decider::Person)
    );
    assert_eq!(pending(&*store, &own).await, []);
    let resolved = Some(EscalationStatus::Resolved);
    assert_eq!(status(&*store, &asked).await, resolved);
    assert_eq!(settle(None).await, Settlement::Over);
    assert_eq!(status(&*store, &asked).await, resolved);
}

pub(crate) async fn what_began_together_ends_when_it_is_decided(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let older = memory(&own, "tea");
    insert(&*store, older.clone()).await;
    let newer = memory(&own, "coffee");
    let verdict = judged(&older, Effect::Escalate { guess: GUESS });
    decided(&*store, &newer, vec![verdict]).await;
    let asked = pending(&*store, &own).await.remove(0);
    let replaced = Some((Relation::Supersedes, Decider::Person));
    let settled = store.settle_escalation(&asked, replaced, time(30));
    assert_eq!(settled.await.unwrap(), Settlement::Settled);
    let over = read(&*store, &older).await;
    assert_eq!(
        (over.status, over.valid_until),
        (Status::Superseded, Some(time(30)))
    );
}

pub(crate) async fn a_decision_that_replaces_nothing_leaves_both_as_they_are(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (first, second) = (
        question(&*store, &own, 1).await,
        question(&*store, &own, 2).await,
    );
    let asked = pending(&*store, &own).await;
    let before = store.revision().await.unwrap();
    let overlap = Some((Relation::Overlap, Decider::Model));
    let settled = store.settle_escalation(&asked[0], overlap, time(30));
    assert_eq!(settled.await.unwrap(), Settlement::Settled);
    let settled = store.settle_escalation(&asked[1], None, time(30));
    assert_eq!(settled.await.unwrap(), Settlement::Settled);
    let dismissed = Some(EscalationStatus::Dismissed);
    assert_eq!(status(&*store, &asked[1]).await, dismissed);
    for memory in [&first.0, &first.1, &second.0, &second.1] {
        let left = read(&*store, memory).await;
        assert_eq!((left.status, left.valid_until), (Status::Active, None));
    }
    let noted = store.relations(&own, second.0.id).await.unwrap();
    assert_eq!(noted[0].relation, Relation::Overlap);
    assert_eq!(store.relations(&own, first.0.id).await.unwrap(), []);
    assert_eq!(store.revision().await.unwrap(), before);
}

pub(crate) async fn a_question_about_a_memory_that_is_gone_is_void(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (kept, replaced) = question(&*store, &own, 1).await;
    let asked = pending(&*store, &own).await.remove(0);
    let by = Decider::Rule;
    let retire = judged(&replaced, Effect::Retire { at: time(15), by });
    let third = Memory {
        updated_at: time(25),
        ..memory(&own, "third")
    };
    decided(&*store, &third, vec![retire]).await;
    let decision = Some((Relation::Overlap, Decider::Person));
    let settled = store.settle_escalation(&asked, decision, time(30));
    assert_eq!(settled.await.unwrap(), Settlement::Void);
    let dismissed = Some(EscalationStatus::Dismissed);
    assert_eq!(status(&*store, &asked).await, dismissed);
    assert_eq!(store.relations(&own, kept.id).await.unwrap(), []);
    // A memory that is forgotten takes its questions along.
    let (forgotten, _) = question(&*store, &own, 2).await;
    let asked = pending(&*store, &own).await.remove(0);
    store
        .forget_memory(std::slice::from_ref(&own), forgotten.id, time(30))
        .await
        .unwrap();
    assert_eq!(status(&*store, &asked).await, None);
    let settled = store.settle_escalation(&asked, decision, time(31));
    assert_eq!(settled.await.unwrap(), Settlement::Void);
}

pub(crate) async fn questions_are_listed_newest_first_page_by_page(backend: &dyn Backend) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let ann = of_user(&shared, "ann");
    let mut newest = Vec::new();
    for n in 0..5 {
        let own = if n % 2 == 0 { &shared } else { &ann };
        newest.insert(0, question(&*store, own, n).await.0.id);
    }
    let both = [shared, ann];
    let (mut after, mut seen) = (None, Vec::new());
    for expected in [2, 2, 1, 0] {
        let page = store.escalations(&both, after, 2).await.unwrap();
        assert_eq!(page.len(), expected);
        after = page.last().map(|e| e.id);
        seen.extend(page.into_iter().map(|e| e.newer));
    }
    assert_eq!(seen, newest);
}

fn letter(partition: &PartitionKey, turn: u32, second: i64) -> DeadLetter {
    DeadLetter {
        partition: partition.clone(),
        session: "trip".parse().unwrap(),
        turn,
        reason: "model".to_owned(),
        attempts: 3,
        at: time(second),
    }
}

pub(crate) async fn dead_letters_are_told_newest_first_and_go_when_they_are_old(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let ann = of_user(&shared, "ann");
    let letters = [
        letter(&shared, 1, 1),
        letter(&ann, u32::MAX, 2),
        letter(&shared, 3, 3),
    ];
    for letter in &letters {
        store.add_dead_letter(letter.clone()).await.unwrap();
    }
    let [first, second, third] = letters;
    let both = [shared.clone(), ann.clone()];
    let bob = [of_user(&shared, "bob")];
    let told = async |partitions, most| store.dead_letters(partitions, most).await.unwrap();
    assert_eq!(told(&both, 2).await, [third.clone(), second.clone()]);
    assert_eq!(told(&both[1..], 5).await, [second.clone()]);
    assert_eq!(told(&bob, 5).await, []);
    let nobody = PartitionKey {
        agent: AgentId::new(),
        ..shared.clone()
    };
    assert!(matches!(
        store.add_dead_letter(letter(&nobody, 1, 1)).await,
        Err(StoreError::Missing("agent"))
    ));
    assert_eq!(store.prune_dead_letters(time(1), 5).await.unwrap(), 0);
    assert_eq!(store.prune_dead_letters(time(3), 1).await.unwrap(), 1);
    assert_eq!(told(&both, 5).await.len(), 2);
    assert_eq!(store.prune_dead_letters(time(3), 5).await.unwrap(), 1);
    assert_eq!(told(&both, 5).await, [third]);
    store.add_dead_letter(first.clone()).await.unwrap();
    assert!(told(&both, 5).await.contains(&first));
}

pub(crate) async fn an_agents_partitions_with_something_to_look_at_are_known(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let users = ["ann", "bob", "cid"].map(|user| of_user(&shared, user));
    let waiting = async |most| {
        let waiting = store.waiting_partitions(shared.org, shared.agent, most);
        waiting.await.unwrap()
    };
    insert(&*store, memory(&users[2], "nothing to look at")).await;
    assert_eq!(waiting(10).await, []);
    let held = Memory {
        status: Status::Quarantined,
        ..memory(&users[0], "held")
    };
    insert(&*store, held.clone()).await;
    question(&*store, &shared, 1).await;
    store
        .add_dead_letter(letter(&users[1], 1, 1))
        .await
        .unwrap();
    let [ann, bob, _] = users;
    let all = [shared.clone(), ann.clone(), bob];
    assert_eq!(waiting(10).await, all, "in the order of their users");
    assert_eq!(waiting(2).await, all[..2]);
    let other = new_agent(&*store, shared.org).await;
    let others = store.waiting_partitions(shared.org, other, 10);
    assert_eq!(others.await.unwrap(), []);
    let asked = pending(&*store, &shared).await.remove(0);
    store
        .settle_escalation(&asked, None, time(30))
        .await
        .unwrap();
    store.prune_dead_letters(time(9), 5).await.unwrap();
    assert_eq!(waiting(10).await, std::slice::from_ref(&ann));
    store
        .forget_memory(&[ann], held.id, time(31))
        .await
        .unwrap();
    assert_eq!(waiting(10).await, []);
}
