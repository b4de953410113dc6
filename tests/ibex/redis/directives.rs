//! Directives that replicas share: the newest that was read counts, and what was changed does not come back.

use std::sync::Arc;
use std::time::Duration;

use ibex::ids::{AgentId, OrgId};
use ibex::session::SessionSecret;
use ibex::store::shared::redis::directives::{
    AgedDirective, KEPT, SharedDirective, SharedDirectives,
};
use ibex::store::{DirectiveMode, DirectiveVersion};
use jiff::Timestamp;

use super::{Raw, two_replicas};

struct Scene {
    replicas: [SharedDirectives; 2],
    raw: Raw,
    org: OrgId,
    agent: AgentId,
    key: String,
}

impl Scene {
    async fn new() -> Self {
        let (replicas, raw) = two_replicas().await;
        let (org, agent) = (OrgId::new(), AgentId::new());
        let key = replicas[0].keys().directive(org, agent).as_str().to_owned();
        let secret = SessionSecret::new(&[1; 32]);
        Self {
            replicas: replicas.map(|redis| SharedDirectives::new(redis, &secret)),
            raw,
            org,
            agent,
            key,
        }
    }

    fn version(&self, version: u32) -> DirectiveVersion {
        DirectiveVersion {
            org: self.org,
            agent: self.agent,
            version,
            content: Arc::from(format!("Be kind, \"{version}\" times.\n\u{1f41d}")),
            mode: DirectiveMode::SystemAppend,
            content_hash: [7; 32],
            active: true,
            created_at: Timestamp::from_microsecond(1_700_000_000_123_456).unwrap(),
            revoked_at: (version == 9).then(|| Timestamp::from_second(5).unwrap()),
        }
    }

    fn read(&self, revision: i64, version: u32, revoked: &[u32]) -> SharedDirective {
        SharedDirective {
            active: (version > 0).then(|| self.version(version)),
            revoked: revoked.to_vec(),
            revision,
        }
    }

    async fn put(&self, read: &SharedDirective) {
        let put = self.replicas[0].put(self.org, self.agent, read);
        put.await.unwrap();
    }

    async fn get(&self) -> Option<AgedDirective> {
        self.replicas[1].get(self.org, self.agent).await.unwrap()
    }

    /// The revision and the version that are there.
    async fn there(&self) -> Option<(i64, Option<u32>)> {
        let read = self.get().await?.read;
        Some((read.revision, read.active.map(|active| active.version)))
    }
}

#[tokio::test]
async fn another_replica_reads_what_one_has_put() {
    let mut scene = Scene::new().await;
    assert!(scene.get().await.is_none());
    for (revision, version, revoked) in [(3, 0, &[][..]), (4, 2, &[1]), (5, 9, &[1, 2, 300])] {
        let put = scene.read(revision, version, revoked);
        scene.put(&put).await;
        let got = scene.get().await.unwrap();
        assert!(got.is_fresh());
        assert_eq!(format!("{:?}", got.read), format!("{put:?}"));
    }
    let left = scene.raw.left(&scene.key).await;
    assert!((1..=600_000).contains(&left), "{left}");
    let others = [(OrgId::new(), scene.agent), (scene.org, AgentId::new())];
    for (org, agent) in others {
        assert!(scene.replicas[0].get(org, agent).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_is_older_takes_no_place() {
    let scene = Scene::new().await;
    scene.put(&scene.read(7, 2, &[])).await;
    scene.put(&scene.read(6, 1, &[])).await;
    assert_eq!(scene.there().await, Some((7, Some(2))));
    scene.put(&scene.read(7, 3, &[])).await;
    assert_eq!(scene.there().await, Some((7, Some(3))));
}

#[tokio::test]
async fn what_was_changed_does_not_come_back() {
    let mut scene = Scene::new().await;
    let outdate = |revision| scene.replicas[1].outdate(scene.org, scene.agent, revision);
    scene.put(&scene.read(7, 2, &[])).await;
    outdate(7).await.unwrap();
    assert_eq!(scene.there().await, Some((7, Some(2))), "it knows of it");
    outdate(8).await.unwrap();
    assert_eq!(scene.there().await, None);
    scene.put(&scene.read(7, 2, &[])).await;
    assert_eq!(scene.there().await, None, "a slow reader is too late");
    scene.put(&scene.read(8, 1, &[2])).await;
    assert_eq!(scene.there().await, Some((8, Some(1))));
    let left = scene.raw.left(&scene.key).await;
    assert!((1..=600_000).contains(&left), "{left}");
}

#[tokio::test]
async fn it_grows_old_and_is_still_told() {
    let mut scene = Scene::new().await;
    scene.put(&scene.read(7, 2, &[])).await;
    let of_age = |age: u64| u32::try_from(u64::try_from(KEPT.as_millis()).unwrap() - age).unwrap();
    scene.raw.let_live(&scene.key, of_age(30_000)).await;
    assert!(scene.get().await.unwrap().is_fresh());
    scene.raw.let_live(&scene.key, of_age(61_000)).await;
    let aged = scene.get().await.unwrap();
    assert!(!aged.is_fresh() && aged.age >= Duration::from_secs(61));
}

#[tokio::test]
async fn what_somebody_else_wrote_is_not_there() {
    let mut scene = Scene::new().await;
    let foreign = super::replica_at(
        crate::support::services::redis_url(),
        scene.key.split(':').next().unwrap(),
    );
    let foreign = SharedDirectives::new(foreign, &SessionSecret::new(&[2; 32]));
    let put = scene.read(7, 2, &[]);
    foreign.put(scene.org, scene.agent, &put).await.unwrap();
    assert!(scene.get().await.is_none());
    scene.put(&scene.read(8, 2, &[])).await;
    let mut value: Vec<u8> = scene.raw.ask(&[b"GET", scene.key.as_bytes()]).await;
    *value.last_mut().unwrap() ^= 1;
    let _: String = scene.raw.ask(&[b"SET", scene.key.as_bytes(), &value]).await;
    assert!(scene.get().await.is_none());
    let _: String = scene.raw.ask(&[b"SET", scene.key.as_bytes(), b"odd"]).await;
    assert!(scene.get().await.is_none());
    scene.put(&scene.read(9, 3, &[])).await;
    assert_eq!(scene.there().await, Some((9, Some(3))));
}
