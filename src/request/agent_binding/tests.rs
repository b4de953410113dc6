use http::{HeaderMap, HeaderName, HeaderValue};

use super::{BoundPrincipal, agent_binding};
use crate::auth::Permissions;
use crate::auth::testing::{Bench, new_token};
use crate::error::{ApiError, Code};
use crate::ids::AgentId;
use crate::request::bearer_token::bearer_token;
use crate::store::AgentStatus;

/// Runs both stages with a token of these permissions, unbound.
async fn bind(
    bench: &Bench,
    permissions: Permissions,
    lines: &[(&str, &str)],
) -> Result<BoundPrincipal, Box<ApiError>> {
    let mut new = new_token(bench.org);
    new.permissions = permissions;
    let token = bench.store.add_token(new);
    let mut headers = HeaderMap::new();
    headers.append(
        "x-api-key",
        HeaderValue::from_str(token.secret.expose()).unwrap(),
    );
    for (name, value) in lines {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    let verified = bearer_token(&headers, &bench.verifier).await.unwrap();
    agent_binding(&verified, &headers, &bench.verifier)
        .await
        .map_err(|error| Box::new(ApiError::from(error)))
}

#[tokio::test]
async fn the_named_agent_and_user_become_the_scope() {
    let bench = Bench::new();
    let agent = bench.store.add_agent(bench.org, AgentStatus::Active);
    let lines = [
        ("X-IBEX-Agent-ID", &*agent.to_string()),
        ("X-IBEX-User-ID", "ann"),
    ];
    let bound = bind(&bench, Permissions::ACT_FOR_USER, &lines)
        .await
        .unwrap();
    assert_eq!(bound.principal().agent(), agent);
    assert_eq!(bound.principal().scope().user().unwrap().as_str(), "ann");
}

#[tokio::test]
async fn an_agent_header_has_one_spelling() {
    let bench = Bench::new();
    let agent = bench
        .store
        .add_agent(bench.org, AgentStatus::Active)
        .to_string();
    let refused = [
        agent.to_uppercase(),
        agent.replace('-', ""),
        format!("{{{agent}}}"),
        format!("urn:uuid:{agent}"),
        format!(" {agent}"),
        format!("{agent} "),
        format!("{agent},{agent}"),
        agent.replacen(|c: char| c.is_ascii_digit(), "\u{661}", 1),
        String::new(),
        "default".to_owned(),
    ];
    for spelling in refused {
        let error = bind(&bench, Permissions::CHAT, &[("x-ibex-agent-id", &spelling)])
            .await
            .unwrap_err();
        assert_eq!(
            (error.code, error.param.as_deref()),
            (Code::ValidationError, Some("X-IBEX-Agent-ID")),
            "{spelling:?}"
        );
    }
}

#[tokio::test]
async fn headers_sent_twice_or_under_a_lookalike_name_are_refused() {
    let bench = Bench::new();
    let agent = &*bench
        .store
        .add_agent(bench.org, AgentStatus::Active)
        .to_string();
    let requests = [
        [("x-ibex-agent-id", agent), ("x-ibex-agent-id", agent)],
        [("x-ibex-agent-id", agent), ("x_ibex_agent_id", agent)],
        [("x-ibex-agent-id", agent), ("x-ibex-agent_id", agent)],
        [("x-ibex-agent-id", agent), ("x-ibex_user-id", "ann")],
        [("x-ibex-agent-id", agent), ("x-ibex-user-id", "")],
        [("x-ibex-agent-id", agent), ("x-ibex-user-id", "a b")],
    ];
    for lines in requests {
        let error = bind(&bench, Permissions::all(), &lines).await.unwrap_err();
        assert_eq!(error.code, Code::ValidationError, "{lines:?}");
    }
    let users = [
        ("x-ibex-agent-id", agent),
        ("x-ibex-user-id", "ann"),
        ("x-ibex-user-id", "ann"),
    ];
    assert_eq!(
        bind(&bench, Permissions::all(), &users)
            .await
            .unwrap_err()
            .code,
        Code::ValidationError
    );
}

#[tokio::test]
async fn refusals_have_their_codes_and_hide_whose_agent_it_is() {
    let bench = Bench::new();
    let foreign = bench
        .store
        .add_agent(bench.store.add_org(), AgentStatus::Active)
        .to_string();
    let unknown = AgentId::new().to_string();
    let paused = bench
        .store
        .add_agent(bench.org, AgentStatus::Paused)
        .to_string();
    let refuse = async |agent: &str| {
        bind(&bench, Permissions::CHAT, &[("x-ibex-agent-id", agent)])
            .await
            .unwrap_err()
    };
    let (first, second) = (refuse(&foreign).await, refuse(&unknown).await);
    assert_eq!(first.code, Code::AgentNotAuthorized);
    assert_eq!(
        (first.code, &first.message, &first.param),
        (second.code, &second.message, &second.param)
    );
    assert_eq!(refuse(&paused).await.code, Code::AgentSuspended);
    assert_eq!(
        bind(&bench, Permissions::CHAT, &[]).await.unwrap_err().code,
        Code::MissingAgentId
    );

    let lines = [("x-ibex-agent-id", &*paused), ("x-ibex-user-id", "ann")];
    let error = bind(&bench, Permissions::CHAT, &lines).await.unwrap_err();
    assert_eq!(
        (error.code, &*error.message),
        (
            Code::InsufficientPermissions,
            "The credential lacks: ActForUser."
        )
    );
}

#[tokio::test]
async fn a_missing_permission_is_named_and_a_held_one_is_not() {
    let bench = Bench::new();
    let agent = bench
        .store
        .add_agent(bench.org, AgentStatus::Active)
        .to_string();
    let bound = bind(
        &bench,
        Permissions::SESSION_READ,
        &[("x-ibex-agent-id", &agent)],
    )
    .await
    .unwrap();
    assert!(bound.clone().require(Permissions::SESSION_READ).is_ok());
    let error = ApiError::from(bound.require(Permissions::CHAT).unwrap_err());
    assert_eq!(
        (error.code, &*error.message),
        (
            Code::InsufficientPermissions,
            "The credential lacks: MemoryRead, SessionCreate."
        )
    );
}
