//! Hot sets that replicas share.

use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::memory::PartitionKey;
use ibex::session::SessionSecret;
use ibex::store::shared::redis::hot::{MOST, SharedHotSets};
use jiff::Timestamp;

use super::two_replicas;

fn partition() -> PartitionKey {
    PartitionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: Some("ann".parse().unwrap()),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[tokio::test]
async fn another_replica_reads_what_was_chosen_last_for_this_partition() {
    let ([one, other], mut raw) = two_replicas().await;
    let secret = SessionSecret::new(&[1; 32]);
    let [own, stranger] =
        [[1; 32], [2; 32]].map(|key| SharedHotSets::new(one.clone(), &SessionSecret::new(&key)));
    let other = SharedHotSets::new(other, &secret);
    let partition = partition();
    let key = one.keys().hot(&partition);
    let (chosen, older) = ([MemoryId::new(), MemoryId::new()], [MemoryId::new()]);
    assert_eq!(other.get(&partition).await, Ok(None));
    assert_eq!(own.put(&partition, &chosen, at(5)).await, Ok(true));
    assert_eq!(own.put(&partition, &older, at(4)).await, Ok(false));
    assert_eq!(other.get(&partition).await, Ok(Some(chosen.to_vec())));
    let left = raw.left(key.as_str()).await;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!(stranger.get(&partition).await, Ok(None), "another key");
    for user in [None, Some("bob".parse().unwrap())] {
        let partition = PartitionKey {
            user,
            ..partition.clone()
        };
        assert_eq!(own.get(&partition).await, Ok(None));
    }
}

#[tokio::test]
async fn a_hot_set_has_an_end() {
    let ([one, _], _) = two_replicas().await;
    let sets = SharedHotSets::new(one, &SessionSecret::new(&[1; 32]));
    let partition = partition();
    let ids: Vec<MemoryId> = (0..=MOST).map(|_| MemoryId::new()).collect();
    assert_eq!(sets.put(&partition, &ids, at(1)).await, Ok(true));
    assert_eq!(sets.get(&partition).await, Ok(Some(ids[..MOST].to_vec())));
}
