//! Stored tokens, caching, invalidation and binding.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use tokio::time::advance;

use super::{AuthError, BindError};
use crate::auth::pat::{IssuedToken, NewToken};
use crate::auth::testing::{Bench, Signer, claims, new_token, start};
use crate::auth::{Credential, Permissions, Principal, TokenClaims};
use crate::config::AuthConfig;
use crate::ids::{AgentId, OrgId, UserId};
use crate::store::{AgentStatus, ChangeKind, IdentityStore, OrgStatus};

impl Bench {
    fn token(&self, change: impl FnOnce(&mut NewToken)) -> IssuedToken {
        let mut new = new_token(self.org);
        change(&mut new);
        self.store.add_token(new)
    }

    async fn verify(&self, token: &str) -> Result<Arc<TokenClaims>, AuthError> {
        self.verifier.verify(Credential::new(token).unwrap()).await
    }

    async fn works(&self, token: &IssuedToken) -> bool {
        self.verify(token.secret.expose()).await.is_ok()
    }

    async fn bind(
        &self,
        token: &IssuedToken,
        agent: Option<AgentId>,
        user: Option<&str>,
    ) -> Result<Principal, BindError> {
        let claims = self.verify(token.secret.expose()).await.unwrap();
        self.verifier
            .bind(&claims, agent, user.map(|user| user.parse().unwrap()))
            .await
    }
}

fn expiring(seconds: i64) -> impl FnOnce(&mut NewToken) {
    move |new| new.expires_at = start().checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[tokio::test]
async fn a_stored_token_says_what_its_row_says() {
    let bench = Bench::new();
    let agent = AgentId::new();
    let user: UserId = "ann".parse().unwrap();
    let token = bench.token(|new| {
        new.agent = Some(agent);
        new.user = Some(user.clone());
    });
    let claims = bench.verify(token.secret.expose()).await.unwrap();
    assert_eq!(
        (claims.org(), claims.token(), claims.agent(), claims.user()),
        (bench.org, token.row.id, Some(agent), Some(&user))
    );
    assert_eq!(claims.permissions(), Permissions::CHAT);
}

#[tokio::test]
async fn every_bad_credential_reads_the_same() {
    let bench = Bench::new();
    let good = bench.token(|_| {});
    let expired = bench.token(expiring(0));
    let revoked = bench.token(|_| {});
    bench
        .store
        .revoke_token(revoked.row.id, start())
        .await
        .unwrap();
    let orphan = bench.token(|new| new.org = OrgId::new());
    let text = good.secret.expose();
    let wrong_secret = format!("{}{}", text.split_at(text.len() - 43).0, "x".repeat(43));
    let unknown = format!("ibex_pat_{}_{}", crate::ids::TokenId::new(), "x".repeat(43));
    let foreign_id = text.replace(&good.row.id.to_string(), &revoked.row.id.to_string());
    let bad = [
        expired.secret.expose(),
        revoked.secret.expose(),
        orphan.secret.expose(),
        &wrong_secret,
        &unknown,
        &foreign_id,
        "ibex_pat_",
        "ibex_pat_x_y",
        "sk-proj-123",
        "a.b.c",
        "..",
        "a.b.c.d",
        &text.to_uppercase(),
    ];
    for credential in bad {
        assert!(
            matches!(bench.verify(credential).await, Err(AuthError::InvalidToken)),
            "{credential}"
        );
    }
    assert!(bench.works(&good).await);
}

#[tokio::test]
async fn what_is_no_credential_of_ours_never_reaches_the_store() {
    let bench = Bench::new();
    for credential in ["sk-proj-123", "ibex_pat_short", "a.b.c", "x"] {
        assert!(bench.verify(credential).await.is_err());
    }
    assert_eq!(bench.store.reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hit_asks_nobody_until_the_entry_is_old() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    assert!(bench.works(&token).await);
    assert_eq!(bench.store.reads(), 2);
    advance(Duration::from_millis(29_999)).await;
    assert!(bench.works(&token).await);
    assert_eq!(bench.store.reads(), 0);
    advance(Duration::from_millis(1)).await;
    assert!(bench.works(&token).await);
    assert_eq!(bench.store.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_entry_outlives_its_token() {
    let bench = Bench::new();
    let token = bench.token(expiring(10));
    assert!(bench.works(&token).await);
    advance(Duration::from_secs(10)).await;
    bench.store.reads();
    // The wall clock was not moved: the entry's own end sends the next request to the store.
    assert!(bench.works(&token).await);
    assert_eq!(bench.store.reads(), 2);

    bench.clock.advance_s(10);
    assert!(
        !bench.works(&token).await,
        "and the wall clock alone ends it as well"
    );
}

#[tokio::test(start_paused = true)]
async fn a_signed_token_ends_with_its_leeway() {
    let signer = Signer::ed(None, 1);
    let bench = Bench::with_keys(vec![signer.config()], |_| {});
    let mut ending = claims();
    ending["exp"] = json!(start().as_second() + 5);
    let token = signer.sign(&ending);
    for (step, accepted) in [(0, true), (34, true), (1, false)] {
        bench.clock.advance_s(step);
        assert_eq!(
            bench.verify(&token).await.is_ok(),
            accepted,
            "after {step} more seconds"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_repeated_for_a_while_without_asking() {
    let bench = Bench::new();
    let unknown = format!("ibex_pat_{}_{}", crate::ids::TokenId::new(), "x".repeat(43));
    assert!(bench.verify(&unknown).await.is_err());
    assert_eq!(bench.store.reads(), 1);
    assert!(bench.verify(&unknown).await.is_err());
    assert_eq!(bench.store.reads(), 0);
    advance(Duration::from_secs(5)).await;
    assert!(bench.verify(&unknown).await.is_err());
    assert_eq!(bench.store.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_bad_tokens_evicts_no_good_one() {
    let config = AuthConfig {
        cache_entries: 4,
        ..AuthConfig::default()
    };
    let bench = Bench::with(config, |_| Vec::new(), &[].into());
    let good = bench.token(|_| {});
    assert!(bench.works(&good).await);
    for n in 0..2_000 {
        assert!(bench.verify(&format!("bad-{n}")).await.is_err());
    }
    bench.store.reads();
    assert!(bench.works(&good).await);
    assert_eq!(bench.store.reads(), 0);
}

#[tokio::test]
async fn a_token_made_after_its_refusal_works_at_once() {
    let bench = Bench::new();
    let issued = crate::auth::pat::issue(
        &crate::auth::testing::token_key(),
        &crate::auth::testing::Dice::default(),
        new_token(bench.org),
    )
    .unwrap();
    assert!(!bench.works(&issued).await);
    bench.store.create_token(issued.row.clone()).await.unwrap();
    bench.verifier.invalidate(&ChangeKind::Token(issued.row.id));
    assert!(bench.works(&issued).await);
}

#[tokio::test]
async fn a_revocation_takes_effect_with_its_change_and_touches_no_other_token() {
    let bench = Bench::new();
    let (doomed, other) = (
        bench.token(|_| {}),
        bench.token(|new| new.permissions = Permissions::NONE),
    );
    assert!(bench.works(&doomed).await && bench.works(&other).await);
    bench
        .store
        .revoke_token(doomed.row.id, start())
        .await
        .unwrap();
    bench.verifier.invalidate(&ChangeKind::Token(doomed.row.id));
    assert!(!bench.works(&doomed).await);
    bench.store.reads();
    assert!(bench.works(&other).await);
    assert_eq!(bench.store.reads(), 0);
}

#[tokio::test]
async fn a_signed_token_is_revoked_by_its_identifier() {
    let signer = Signer::ed(None, 1);
    let bench = Bench::with_keys(vec![signer.config()], |_| {});
    let token = signer.sign(&claims());
    let id = bench.verify(&token).await.unwrap().token();
    bench.verifier.invalidate(&ChangeKind::Token(id));
    assert!(matches!(
        bench.verify(&token).await,
        Err(AuthError::InvalidToken)
    ));
    bench.verifier.invalidate_all();
    assert!(
        bench.verify(&token).await.is_err(),
        "a gap in the feed does not undo it"
    );
}

#[tokio::test]
async fn a_suspended_organisation_is_told_apart_and_comes_back() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    assert!(bench.works(&token).await);
    for (status, works) in [(OrgStatus::Suspended, false), (OrgStatus::Active, true)] {
        bench.store.set_org_status(bench.org, status).await.unwrap();
        bench.verifier.invalidate(&ChangeKind::Org(bench.org));
        assert_eq!(bench.works(&token).await, works);
    }
    bench
        .store
        .set_org_status(bench.org, OrgStatus::Suspended)
        .await
        .unwrap();
    bench.verifier.invalidate_all();
    assert!(matches!(
        bench.verify(token.secret.expose()).await,
        Err(AuthError::OrgSuspended)
    ));
    let forged = token.secret.expose().replace(
        &token.row.id.to_string(),
        &crate::ids::TokenId::new().to_string(),
    );
    assert!(
        matches!(bench.verify(&forged).await, Err(AuthError::InvalidToken)),
        "only a valid token learns of it"
    );
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_only_fresh_entries_serve() {
    let bench = Bench::new();
    let (warm, cold) = (
        bench.token(|_| {}),
        bench.token(|new| new.permissions = Permissions::NONE),
    );
    assert!(bench.works(&warm).await);
    bench.store.down.store(true, Ordering::Relaxed);
    assert!(bench.works(&warm).await);
    assert!(matches!(
        bench.verify(cold.secret.expose()).await,
        Err(AuthError::Unavailable(_))
    ));
    advance(Duration::from_secs(30)).await;
    assert!(matches!(
        bench.verify(warm.secret.expose()).await,
        Err(AuthError::Unavailable(_))
    ));
    bench.store.down.store(false, Ordering::Relaxed);
    assert!(
        bench.works(&cold).await,
        "the outage left no refusal behind"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_a_store_that_is_down() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    let claims = bench.verify(token.secret.expose()).await.unwrap();
    bench.store.hanging.store(true, Ordering::Relaxed);
    bench.verifier.invalidate_all();
    assert!(matches!(
        bench.verify(token.secret.expose()).await,
        Err(AuthError::Unavailable(_))
    ));
    let bound = bench
        .verifier
        .bind(&claims, Some(AgentId::new()), None)
        .await;
    assert!(matches!(bound, Err(BindError::Unavailable(_))));
}

#[tokio::test]
async fn an_unbound_token_takes_the_agent_from_the_request() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    let agent = bench.store.add_agent(bench.org, AgentStatus::Active);
    let principal = bench.bind(&token, Some(agent), None).await.unwrap();
    assert_eq!(
        (principal.org(), principal.agent(), principal.token()),
        (bench.org, agent, token.row.id)
    );
    assert!(principal.scope().user().is_none());
    assert!(matches!(
        bench.bind(&token, None, None).await,
        Err(BindError::MissingAgent)
    ));
}

#[tokio::test]
async fn a_bound_token_needs_no_header_and_refuses_another_agent_before_any_lookup() {
    let bench = Bench::new();
    let agent = bench.store.add_agent(bench.org, AgentStatus::Active);
    let sibling = bench.store.add_agent(bench.org, AgentStatus::Active);
    let token = bench.token(|new| new.agent = Some(agent));
    assert_eq!(bench.bind(&token, None, None).await.unwrap().agent(), agent);
    assert_eq!(
        bench.bind(&token, Some(agent), None).await.unwrap().agent(),
        agent
    );
    bench.store.reads();
    assert!(matches!(
        bench.bind(&token, Some(sibling), None).await,
        Err(BindError::AgentNotAuthorized)
    ));
    assert_eq!(bench.store.reads(), 0);
}

#[tokio::test]
async fn a_foreign_agent_reads_like_an_unknown_one() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    let foreign = bench
        .store
        .add_agent(bench.store.add_org(), AgentStatus::Suspended);
    for agent in [foreign, AgentId::new()] {
        assert!(matches!(
            bench.bind(&token, Some(agent), None).await,
            Err(BindError::AgentNotAuthorized)
        ));
    }
}

#[tokio::test]
async fn an_agent_must_be_active_and_its_change_is_seen() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    let agent = bench.store.add_agent(bench.org, AgentStatus::Active);
    assert!(bench.bind(&token, Some(agent), None).await.is_ok());
    bench.store.reads();
    assert!(bench.bind(&token, Some(agent), None).await.is_ok());
    assert_eq!(bench.store.reads(), 0, "looked up once");
    for status in [
        AgentStatus::Paused,
        AgentStatus::Suspended,
        AgentStatus::Archived,
    ] {
        bench
            .store
            .set_agent_status(bench.org, agent, status)
            .await
            .unwrap();
        bench
            .verifier
            .invalidate(&ChangeKind::Agent(bench.org, agent));
        assert!(
            matches!(
                bench.bind(&token, Some(agent), None).await,
                Err(BindError::AgentSuspended)
            ),
            "{status:?}"
        );
    }
}

#[tokio::test]
async fn an_agent_created_after_its_refusal_is_seen_with_its_change() {
    let bench = Bench::new();
    let token = bench.token(|_| {});
    let agent = bench.store.add_agent(bench.org, AgentStatus::Active);
    let mut row = bench.store.agent(bench.org, agent).await.unwrap().unwrap();
    row.id = AgentId::new();
    assert!(bench.bind(&token, Some(row.id), None).await.is_err());
    bench.store.create_agent(row.clone()).await.unwrap();
    bench
        .verifier
        .invalidate(&ChangeKind::Agent(bench.org, row.id));
    assert!(bench.bind(&token, Some(row.id), None).await.is_ok());
}

#[tokio::test]
async fn users_come_from_the_token_or_need_a_permission() {
    let bench = Bench::new();
    let agent = bench.store.add_agent(bench.org, AgentStatus::Active);
    let plain = bench.token(|_| {});
    let acting = bench.token(|new| new.permissions = Permissions::ACT_FOR_USER);
    let bound = bench.token(|new| {
        new.permissions = Permissions::all();
        new.user = "ann".parse().ok();
    });
    let user = async |token, named| {
        bench
            .bind(token, Some(agent), named)
            .await
            .map(|p| p.scope().user().map(|u| u.as_str().to_owned()))
    };
    assert!(matches!(
        user(&plain, Some("ann")).await,
        Err(BindError::MayNotNameUser)
    ));
    assert_eq!(user(&plain, None).await.unwrap(), None);
    assert_eq!(
        user(&acting, Some("bob")).await.unwrap().as_deref(),
        Some("bob")
    );
    assert_eq!(user(&acting, None).await.unwrap(), None);
    assert_eq!(user(&bound, None).await.unwrap().as_deref(), Some("ann"));
    assert_eq!(
        user(&bound, Some("ann")).await.unwrap().as_deref(),
        Some("ann")
    );
    assert!(
        matches!(
            user(&bound, Some("bob")).await,
            Err(BindError::UserNotAuthorized)
        ),
        "ActForUser does not help"
    );
}
