//! The same session id under another user, agent or organisation is another session: no byte of one is ever sent in the other.

use std::sync::Arc;

use bytes::Bytes;
use ibex::auth::Permissions;
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::openai::ChatRequest;
use ibex::session::{
    Block, Chain, Element, Elements, Enveloped, Opening, OpeningParts, Outcome, SessionKey,
    SessionSecret, Text,
};
use ibex::store::shared::SessionCache;
use ibex::tokens::{Family, Tally};

use super::gate::Gate;
use super::scene::{Scene, Talk, assert_extends, plain, remember, says, with_snapshot};
use crate::support::{Client, Overrides};

/// Somebody with a memory that nobody else may see.
struct Tenant {
    secret: String,
    talk: Talk,
    nonce: String,
}

/// Two users, two agents and two organisations, all in the session `trip`.
async fn tenants(scene: &Scene) -> Vec<Tenant> {
    let app = &scene.app;
    let (agent, org, foreign) = (AgentId::new(), OrgId::new(), AgentId::new());
    app.create_agent(app.org, agent).await;
    app.create_org(org).await;
    app.create_agent(org, foreign).await;
    let token = app.mint(org, None, None, Permissions::all()).await;
    let of = |client: Client, org, agent, user: &str| {
        let key = SessionKey {
            org,
            agent,
            user: (!user.is_empty()).then(|| user.parse().unwrap()),
            id: "trip".parse().unwrap(),
        };
        let client = match user {
            "" => client,
            user => client.header("x-ibex-user-id", user),
        };
        (client, key)
    };
    let mut tenants = Vec::new();
    for (n, (client, key)) in [
        of(app.client(), app.org, app.agent, "ann"),
        of(app.client(), app.org, app.agent, "bob"),
        of(app.client_with(&app.token, Some(agent)), app.org, agent, ""),
        of(
            app.client_with(&app.token, Some(agent)),
            app.org,
            agent,
            "ann",
        ),
        of(app.client_with(&token, Some(foreign)), org, foreign, ""),
        of(app.client_with(&token, Some(foreign)), org, foreign, "ann"),
    ]
    .into_iter()
    .enumerate()
    {
        let secret = format!("The spare key hangs in shed number {n}{n}{n}.");
        let client = client.header("x-ibex-session-id", "trip");
        tenants.push(Tenant {
            secret,
            nonce: scene.nonce(&key),
            talk: Talk::of(client),
        });
    }
    tenants
}

#[tokio::test]
async fn the_same_session_id_under_another_scope_shares_no_byte() {
    for (edit, envelope) in [
        (plain as fn(&mut _), "recall"),
        (with_snapshot as fn(&mut _), "snapshot"),
    ] {
        let scene = Scene::with(edit, Overrides::default()).await;
        let mut tenants = tenants(&scene).await;
        // The second of a pair has nothing of its own that is the agent's: what an agent knows, its users see.
        for tenant in tenants.iter_mut().filter(|t| t.talk_is_a_users()) {
            remember(&tenant.talk.client, &tenant.secret).await;
        }
        for question in ["Where is the spare key?", "And where was it?"] {
            for n in 0..tenants.len() {
                let sent = tenants[n].talk.ask(&scene, question).await;
                assert_eq!(sent.epoch(), "1");
                for (m, other) in tenants.iter().enumerate() {
                    let own = m == n;
                    assert_eq!(sent.body.contains(&other.nonce), own, "{n} {m} {envelope}");
                    let known = own && other.talk_is_a_users();
                    assert_eq!(
                        sent.body.contains(&other.secret),
                        known,
                        "{n} {m} {envelope}"
                    );
                }
                let expected = usize::from(tenants[n].talk_is_a_users());
                assert_eq!(sent.envelopes(envelope).len(), expected);
            }
        }
    }
}

impl Tenant {
    fn talk_is_a_users(&self) -> bool {
        format!("{:?}", self.talk.client).contains("x-ibex-user-id")
    }
}

fn foreign(scene: &Scene) -> Arc<SessionKey> {
    let mut key = scene.key("trip");
    key.user = Some("mallory".parse().unwrap());
    Arc::new(key)
}

const FREE: Tally = Tally::given(Family::Unknown, 0);

fn forged_opening(owner: &Arc<SessionKey>) -> Arc<Opening> {
    Arc::new(Opening::new(OpeningParts {
        nonce: SessionSecret::new(&[1; 32]).nonce(owner, 1),
        owner: Arc::clone(owner),
        epoch: 1,
        nonce_epoch: 1,
        directive: None,
        head: Text::new("a foreign head"),
        line: Bytes::from_static(b"a foreign line"),
        snapshot: None,
        cost: FREE,
        reason: None,
    }))
}

fn forged_outcome(owner: &Arc<SessionKey>) -> Outcome {
    let element = Element {
        id: MemoryId::new(),
        json: Bytes::from_static(b"a foreign block"),
        cost: FREE,
    };
    let elements = Elements::new(&[Arc::new(element)]).unwrap();
    let recall = Enveloped::new("", Arc::new(elements), "", FREE);
    let block = Block::new(Arc::clone(owner), 1, Some(recall), None);
    Outcome::Block(Arc::new(block.unwrap()))
}

#[tokio::test]
async fn frozen_text_of_another_scope_under_a_sessions_key_is_not_used() {
    for (forges_opening, stored) in [(true, false), (false, false), (true, true), (false, true)] {
        let gate = Gate::new();
        let scene = Scene::with(plain, gate.overrides()).await;
        gate.serve(&scene.app.app);
        let mut talk = scene.talk("trip");
        if stored {
            talk.ask(&scene, "Where is the spare key?").await;
            scene.app.app.sessions.records.flushed().await;
            gate.lanes().clear();
        }
        talk.push(says("user", "And the other one?"));
        let owner = foreign(&scene);
        if forges_opening {
            let forged = forged_opening(&owner);
            gate.lanes()
                .open(&scene.lane("trip"), forged, Vec::new())
                .await
                .unwrap();
        } else {
            let chat = ChatRequest::parse(talk.body().into(), 10).unwrap();
            let chain = Chain::of(&chat, scene.app.org, &scene.app.app.sessions.secret);
            let turns = chain.turns().last().copied();
            let forged = turns.map(|turn| (turn, forged_outcome(&owner)));
            let lane = scene.lane("trip");
            let forged = forged.into_iter().collect();
            gate.lanes().settle(&lane, 1, forged).await.unwrap();
        }
        for _ in 0..2 {
            let sent = talk.send(&scene).await;
            let case = format!("{forges_opening} {stored}: {}", sent.body);
            assert!(!sent.body.contains("foreign"), "{case}");
            assert_eq!(sent.told("context-reason"), "session=error", "{case}");
        }
    }
}

#[tokio::test]
async fn two_sessions_of_one_scope_share_the_prefix_up_to_the_nonce_and_no_block() {
    let scene = Scene::new().await;
    scene.direct("Be brief.").await;
    scene.remember("The spare key hangs in the shed.").await;
    let (mut one, mut other) = (scene.talk("one"), scene.talk("other"));
    let first = one.ask(&scene, "Where is the spare key?").await;
    let second = other.ask(&scene, "Where is the spare key?").await;
    let (ours, theirs) = (
        scene.nonce(&scene.key("one")),
        scene.nonce(&scene.key("other")),
    );
    assert!(first.body.contains(&ours) && !first.body.contains(&theirs));
    assert!(second.body.contains(&theirs) && !second.body.contains(&ours));
    assert_eq!(
        first.body.replace(&ours, "NONCE"),
        second.body.replace(&theirs, "NONCE"),
        "the rest is the same"
    );
    assert_extends(&first, &one.ask(&scene, "And now?").await);
}
