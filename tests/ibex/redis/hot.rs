//! Hot sets that replicas share.

use ibex::ids::{AgentId, OrgId};
use ibex::memory::PartitionKey;
use ibex::session::SessionSecret;
use ibex::store::shared::redis::hot::{MOST_BYTES, SharedHotSets};

use super::two_replicas;

#[tokio::test]
async fn another_replica_reads_what_one_has_put_for_this_partition_and_version() {
    let ([one, other], mut raw) = two_replicas().await;
    let secret = SessionSecret::new(&[1; 32]);
    let [own, newer] = [1, 2].map(|version| SharedHotSets::new(one.clone(), &secret, version));
    let other = SharedHotSets::new(other, &secret, 1);
    let partition = PartitionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: Some("ann".parse().unwrap()),
    };
    let key = one.keys().hot(&partition);
    assert_eq!(other.get(&partition).await, Ok(None));
    assert_eq!(own.put(&partition, 5, b"members").await, Ok(true));
    assert_eq!(own.put(&partition, 4, b"older").await, Ok(false));
    let found = other.get(&partition).await.unwrap().unwrap();
    assert_eq!((found.revision, &found.bytes[..]), (5, &b"members"[..]));
    let left = raw.left(key.as_str()).await;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!(newer.get(&partition).await, Ok(None), "another version");
    for user in [None, Some("bob".parse().unwrap())] {
        let partition = PartitionKey {
            user,
            ..partition.clone()
        };
        assert_eq!(own.get(&partition).await, Ok(None));
    }
    other.outdate(&partition, 6).await.unwrap();
    assert_eq!(own.get(&partition).await, Ok(None));
    let value: Vec<u8> = raw.ask(&[b"GET", key.as_str().as_bytes()]).await;
    assert_eq!(value.len(), 8, "the text is gone");
    assert_eq!(own.put(&partition, 5, b"members").await, Ok(false));
    assert_eq!(own.put(&partition, 6, b"others").await, Ok(true));
}

#[tokio::test]
async fn what_is_too_large_is_not_put() {
    let ([one, _], _) = two_replicas().await;
    let sets = SharedHotSets::new(one, &SessionSecret::new(&[1; 32]), 1);
    let partition = PartitionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: None,
    };
    let whole = vec![7; MOST_BYTES];
    assert_eq!(sets.put(&partition, 1, &whole).await, Ok(true));
    let found = sets.get(&partition).await.unwrap().unwrap();
    assert_eq!(found.bytes, whole);
    let more = vec![7; MOST_BYTES + 1];
    assert_eq!(sets.put(&partition, 2, &more).await, Ok(false));
    assert_eq!(sets.get(&partition).await.unwrap().unwrap().revision, 1);
}
