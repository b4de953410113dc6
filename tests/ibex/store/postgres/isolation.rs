//! Tenants are kept apart twice: by row-level security without any predicate, and by the predicates without row-level security.

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use ibex::ids::{MemoryId, OrgId, TokenId};
use ibex::memory::{Memory, PartitionKey};
use ibex::session::{LaneKey, SessionKey};
use ibex::store::postgres::{Candidates, PostgresStore};
use ibex::store::{
    AgentStatus, CaptureScope, DeadLetter, Decider, DirectiveMode, DirectiveStore, Draft, Edit,
    Edited, Effect, EmbeddingStore, Escalation, IdentityStore, LedgerEntry, LedgerKey,
    LedgerMember, MemoryStore, NewDirective, NewEmbedding, Refined, RefineryStore, Relation,
    SessionStore, Settlement, Verdict,
};

use super::databases::Postgres;
use crate::store::fixtures::sessions::{MODEL, chain, end, ended, key, lane, open, record, settle};
use crate::store::fixtures::{history, memory, new_partition, of_user, time, token};

/// What holds no content of a tenant, and is left out of row-level security on purpose.
const OPEN: [&str; 6] = [
    "orgs",
    "feed",
    "changes",
    "session_runs",
    "schema_steps",
    "imports",
];

/// An organisation with rows in every table.
struct Tenant {
    own: PartitionKey,
    token: TokenId,
    active: Memory,
    related: MemoryId,
    forgotten: MemoryId,
    escalation: Escalation,
    ledger: LedgerKey,
    session: SessionKey,
    lane: LaneKey,
}

async fn tenant(store: &PostgresStore) -> Tenant {
    let own = of_user(&new_partition(store).await, "ann");
    let (org, agent) = (own.org, own.agent);
    let token = token(org, Some(agent));
    store.create_token(token.clone()).await.unwrap();
    let directive = NewDirective {
        org,
        agent,
        content: "Be kind.".into(),
        mode: DirectiveMode::SystemFirst,
        created_at: time(0),
    };
    store.add_directive(directive).await.unwrap();
    store.promote_directive(org, agent, 1).await.unwrap();
    let (active, related, forgotten) = (
        memory(&own, "tea in the morning"),
        memory(&own, "coffee in the evening"),
        memory(&own, "gone"),
    );
    let ledger = LedgerKey {
        org,
        agent,
        key: "once".parse().unwrap(),
    };
    let first = Refined {
        rows: vec![active.clone().into(), forgotten.clone().into()],
        ledger: Some(LedgerEntry {
            key: ledger.clone(),
            asked: [1; 32],
            members: vec![LedgerMember::Row(0), LedgerMember::Row(1)],
            at: time(1),
            since: time(0),
        }),
    };
    store.commit(first).await.unwrap();
    let judged = |effect| Verdict {
        existing: active.id,
        judged: 0,
        effect,
    };
    let second = Draft {
        verdicts: vec![
            judged(Effect::Relate {
                relation: Relation::Overlap,
                by: Decider::Rule,
            }),
            judged(Effect::Escalate {
                guess: Relation::Contradiction,
            }),
        ],
        ..Draft::from(related.clone())
    };
    let second = Refined {
        rows: vec![second],
        ledger: None,
    };
    store.commit(second).await.unwrap();
    let scope = std::slice::from_ref(&own);
    store
        .forget_memory(scope, forgotten.id, time(2))
        .await
        .unwrap()
        .unwrap();
    let letter = DeadLetter {
        partition: own.clone(),
        session: "s".parse().unwrap(),
        turn: 1,
        reason: "model".to_owned(),
        attempts: 3,
        at: time(3),
    };
    store.add_dead_letter(letter).await.unwrap();
    let session = key(&own, "s");
    let lane = lane(&session, MODEL);
    record(
        store,
        &[
            open(&session, 1),
            settle(&lane, 1, 2),
            ended(&lane, 1, end(3)),
        ],
    )
    .await;
    store
        .put_working_state(&session, "{}".to_owned(), time(4))
        .await
        .unwrap();
    let escalation = store.escalations(scope, None, 10).await.unwrap().remove(0);
    Tenant {
        token: token.id,
        related: related.id,
        forgotten: forgotten.id,
        own,
        active,
        escalation,
        ledger,
        session,
        lane,
    }
}

/// Every table with an organisation's column, as the catalogue knows them.
async fn tables(raw: &mut PgConnection) -> Vec<String> {
    let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'ibex' AND c.relkind IN ('r', 'p') ORDER BY 1";
    let rows = sqlx::query(sql).fetch_all(raw).await.unwrap();
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(
        OPEN.iter()
            .all(|open| names.iter().any(|name| name == open))
    );
    names
        .into_iter()
        .filter(|name| !OPEN.contains(&name.as_str()))
        .collect()
}

/// A connection as the program has them, under an organisation's setting.
async fn as_program(database: &Postgres, org: Option<OrgId>) -> PgConnection {
    let mut raw = database.raw().await;
    raw.execute("SET search_path = ibex, public; SET ROLE ibex_app")
        .await
        .unwrap();
    if let Some(org) = org {
        let own = format!("SELECT set_config('ibex.org', '{org}', FALSE)");
        raw.execute(AssertSqlSafe(own)).await.unwrap();
    }
    raw
}

async fn number(conn: &mut PgConnection, sql: String) -> i64 {
    sqlx::query(AssertSqlSafe(sql.clone()))
        .fetch_one(conn)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
        .get(0)
}

/// Runs a statement in a transaction of its own that is rolled back: how many rows it touched, or the code of its error.
async fn tried(conn: &mut PgConnection, sql: String) -> Result<u64, String> {
    let mut tx = conn.begin().await.unwrap();
    let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await;
    tx.rollback().await.unwrap();
    done.map(|done| done.rows_affected()).map_err(|error| {
        error
            .as_database_error()
            .and_then(|e| e.code())
            .map(|c| c.into_owned())
            .unwrap_or_default()
    })
}

/// The code of a row that a policy does not take.
const NOT_TAKEN: &str = "42501";

#[tokio::test]
async fn without_any_predicate_no_row_of_another_organisation_is_read_or_written() {
    let database = Postgres::new();
    let store = database.connect().await;
    let (first, second) = (tenant(&store).await.own.org, tenant(&store).await.own.org);
    store.close().await.unwrap();
    let tables = tables(&mut database.raw().await).await;
    assert!(tables.len() >= 16, "{tables:?}");
    let (mut own, mut nobody) = (
        as_program(&database, Some(first)).await,
        as_program(&database, None).await,
    );
    for table in tables {
        let all = number(&mut own, format!("SELECT count(*) FROM {table}")).await;
        assert!(all > 0, "{table} is filled");
        let foreign = format!("SELECT count(*) FROM {table} WHERE org <> '{first}'");
        assert_eq!(number(&mut own, foreign).await, 0, "{table}");
        assert_eq!(
            number(&mut nobody, format!("SELECT count(*) FROM {table}")).await,
            0,
            "{table}"
        );
        let all = u64::try_from(all).unwrap();
        let touch = format!("UPDATE {table} SET org = org");
        assert_eq!(tried(&mut own, touch.clone()).await, Ok(all), "{table}");
        assert_eq!(tried(&mut nobody, touch).await, Ok(0), "{table}");
        let take = format!("UPDATE {table} SET org = '{first}' WHERE org = '{second}'");
        assert_eq!(tried(&mut own, take).await, Ok(0), "{table}");
        let give = format!("UPDATE {table} SET org = '{second}'");
        assert_eq!(
            tried(&mut own, give).await,
            Err(NOT_TAKEN.to_owned()),
            "{table}"
        );
        let copy = format!(
            "INSERT INTO {table} OVERRIDING SYSTEM VALUE
             SELECT (jsonb_populate_record(t, jsonb_build_object('org', '{second}'))).* FROM {table} t LIMIT 1"
        );
        assert_eq!(
            tried(&mut own, copy).await,
            Err(NOT_TAKEN.to_owned()),
            "{table}"
        );
        let delete = format!("DELETE FROM {table} WHERE org = '{second}'");
        assert_eq!(tried(&mut own, delete).await, Ok(0), "{table}");
    }
    assert_eq!(
        number(
            &mut as_program(&database, Some(second)).await,
            "SELECT count(*) FROM sessions".into()
        )
        .await,
        1
    );
}

#[tokio::test]
async fn neither_the_program_nor_the_owner_lifts_the_protection_by_a_setting() {
    let database = Postgres::new();
    let store = database.connect().await;
    let first = tenant(&store).await;
    let mut own = as_program(&database, Some(first.own.org)).await;
    for lift in [
        "ALTER TABLE memories DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON memories",
        "ALTER ROLE ibex_app BYPASSRLS",
        "DELETE FROM schema_steps",
    ] {
        assert_eq!(
            tried(&mut own, lift.to_owned()).await,
            Err(NOT_TAKEN.to_owned()),
            "{lift}"
        );
    }
    own.execute("SET row_security = off").await.unwrap();
    let all = tried(&mut own, "UPDATE memories SET org = org".to_owned()).await;
    assert_eq!(
        all,
        Err(NOT_TAKEN.to_owned()),
        "the engine refuses instead of leaving the policies out"
    );
    let mut owner = database.raw().await;
    assert_eq!(
        number(&mut owner, "SELECT count(*) FROM ibex.memories".into()).await,
        0
    );
}

#[tokio::test]
async fn a_token_shows_itself_and_no_other_row_before_its_organisation_is_known() {
    let database = Postgres::new();
    let store = database.connect().await;
    let (first, second) = (tenant(&store).await, tenant(&store).await);
    let mut nobody = as_program(&database, None).await;
    let presented = format!("SELECT set_config('ibex.token', '{}', FALSE)", first.token);
    nobody.execute(AssertSqlSafe(presented)).await.unwrap();
    let own = format!("SELECT count(*) FROM tokens WHERE id = '{}'", first.token);
    assert_eq!(number(&mut nobody, own).await, 1);
    assert_eq!(
        number(&mut nobody, "SELECT count(*) FROM tokens".into()).await,
        1
    );
    assert_eq!(
        number(&mut nobody, "SELECT count(*) FROM agents".into()).await,
        0
    );
    let change = tried(&mut nobody, "UPDATE tokens SET revoked_at = 1".into()).await;
    assert_eq!(change, Ok(0), "it is shown, not given away");
    assert_eq!(
        store.token(second.token).await.unwrap().unwrap().org,
        second.own.org
    );
}

/// Row-level security of every table is switched off, behind the back of a store that is in use.
async fn unprotect(database: &Postgres) {
    let mut raw = database.raw().await;
    for table in tables(&mut raw).await {
        let open = format!("ALTER TABLE ibex.{table} DISABLE ROW LEVEL SECURITY");
        raw.execute(AssertSqlSafe(open)).await.unwrap();
    }
    let all = number(
        &mut raw,
        "SELECT count(DISTINCT org) FROM ibex.memories".into(),
    )
    .await;
    assert_eq!(all, 2, "all rows are open");
}

#[tokio::test]
async fn without_row_level_security_no_method_reads_another_organisations_rows() {
    let database = Postgres::new();
    let store = database.connect().await;
    let (theirs, ours) = (tenant(&store).await, tenant(&store).await);
    unprotect(&database).await;
    // Their agent and their user under our organisation: only the organisation is another one.
    let crossed = PartitionKey {
        org: ours.own.org,
        ..theirs.own.clone()
    };
    let (org, agent) = (crossed.org, crossed.agent);
    assert!(store.agent(org, agent).await.unwrap().is_none());
    assert!(
        store
            .agents(org)
            .await
            .unwrap()
            .iter()
            .all(|a| a.org == org)
    );
    assert!(
        store
            .tokens(org)
            .await
            .unwrap()
            .iter()
            .all(|t| t.org == org)
    );
    assert!(store.active_directive(org, agent).await.unwrap().is_none());
    assert!(
        store
            .directive_versions(org, agent)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .directive_version(org, agent, 1)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        store
            .revoked_directives(org, agent)
            .await
            .unwrap()
            .is_empty()
    );
    reads_no_memory(&store, &theirs, &crossed).await;
    let session = SessionKey {
        org,
        ..theirs.session.clone()
    };
    let lane = LaneKey {
        session: session.clone(),
        ..theirs.lane.clone()
    };
    assert!(!store.knows_session(&session).await.unwrap());
    assert!(store.session_lane(&lane).await.unwrap().is_none());
    assert!(store.session(&session, 10).await.unwrap().is_none());
    assert!(store.working_state(&session, None).await.unwrap().is_none());
    let ledger = LedgerKey {
        org,
        ..theirs.ledger.clone()
    };
    assert!(
        store
            .ledger_row(&ledger, Timestamp::MIN)
            .await
            .unwrap()
            .is_none()
    );
}

async fn reads_no_memory(store: &Arc<PostgresStore>, theirs: &Tenant, crossed: &PartitionKey) {
    let scope = std::slice::from_ref(crossed);
    let again = Memory {
        id: MemoryId::new(),
        partition: crossed.clone(),
        ..theirs.active.clone()
    };
    assert!(
        store
            .memory(scope, theirs.active.id)
            .await
            .unwrap()
            .is_none()
    );
    let ids = [theirs.active.id, theirs.related, theirs.forgotten];
    assert!(store.memories_by_id(scope, &ids).await.unwrap().is_empty());
    let filter = history(&**store, &theirs.own).await;
    assert!(
        store
            .list_memories(scope, filter)
            .await
            .unwrap()
            .memories
            .is_empty()
    );
    assert!(
        store
            .partition_memories(crossed, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(store.duplicate_of(&again).await.unwrap(), None);
    assert_eq!(store.count_memories(crossed).await.unwrap(), 0);
    assert_eq!(store.forget_fence(scope).await.unwrap(), 0);
    assert!(
        store
            .forget_fence(std::slice::from_ref(&theirs.own))
            .await
            .unwrap()
            > 0
    );
    assert!(
        store
            .unembedded(crossed, "other", None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!store.is_tombstoned(crossed, [0; 32]).await.unwrap());
    assert!(
        store
            .slot_mates(crossed, [0; 16], 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .relations(crossed, theirs.active.id)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .review(crossed, theirs.active.id)
            .await
            .unwrap()
            .is_none()
    );
    assert!(store.escalations(scope, None, 10).await.unwrap().is_empty());
    assert!(
        store
            .escalation(scope, theirs.escalation.id)
            .await
            .unwrap()
            .is_none()
    );
    assert!(store.dead_letters(scope, 10).await.unwrap().is_empty());
    let waiting = store
        .waiting_partitions(crossed.org, crossed.agent, 10)
        .await
        .unwrap();
    assert!(waiting.is_empty(), "{waiting:?}");
    let words = ["tea".to_owned(), "coffee".to_owned()];
    let wanted = Candidates {
        vector: Some(("test-2", &[0.6, 0.8])),
        words: &words,
        limit: 10,
        now: time(1),
    };
    assert!(
        store
            .search_candidates(crossed, wanted)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        store
            .search_candidates(&theirs.own, wanted)
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn without_row_level_security_no_method_writes_another_organisations_rows() {
    let database = Postgres::new();
    let store = database.connect().await;
    let (theirs, ours) = (tenant(&store).await, tenant(&store).await);
    unprotect(&database).await;
    let crossed = PartitionKey {
        org: ours.own.org,
        ..theirs.own.clone()
    };
    let (org, agent) = (crossed.org, crossed.agent);
    let scope = std::slice::from_ref(&crossed);
    store
        .set_agent_status(org, agent, AgentStatus::Paused)
        .await
        .unwrap_err();
    store
        .set_agent_capture(org, agent, CaptureScope::Agent)
        .await
        .unwrap_err();
    store.promote_directive(org, agent, 1).await.unwrap_err();
    store.rollback_directive(org, agent).await.unwrap_err();
    store
        .revoke_directive(org, agent, 1, time(9))
        .await
        .unwrap_err();
    assert_eq!(
        store
            .forget_memory(scope, theirs.active.id, time(9))
            .await
            .unwrap(),
        None
    );
    assert!(
        store
            .vote(scope, theirs.active.id, true, time(9))
            .await
            .unwrap()
            .is_none()
    );
    store
        .bump_retrieved(scope, vec![theirs.active.id], time(9))
        .await
        .unwrap();
    let held = store
        .memory(std::slice::from_ref(&theirs.own), theirs.active.id)
        .await
        .unwrap()
        .unwrap();
    let edit = Edit {
        draft: Memory {
            partition: crossed.clone(),
            ..held.clone()
        }
        .into(),
        read_at: held.revision,
        forgets: true,
    };
    assert_eq!(store.edit(edit).await.unwrap(), Edited::Stale);
    let vector = NewEmbedding {
        id: held.id,
        content_hash: held.content_hash,
        embedding: held.embedding.clone().unwrap(),
    };
    assert_eq!(
        store.set_embeddings(&crossed, vec![vector]).await.unwrap(),
        0
    );
    let question = Escalation {
        partition: crossed.clone(),
        ..theirs.escalation.clone()
    };
    let decision = Some((Relation::Supersedes, Decider::Person));
    assert_eq!(
        store
            .settle_escalation(&question, decision, time(9))
            .await
            .unwrap(),
        Settlement::Void
    );
    let session = SessionKey {
        org,
        ..theirs.session.clone()
    };
    assert_eq!(
        store.terminate_session(&session, time(9)).await.unwrap(),
        None
    );
    let foreign = LaneKey {
        session: session.clone(),
        ..theirs.lane.clone()
    };
    record(
        &*store,
        &[settle(&foreign, 2, 9), ended(&foreign, 1, end(9))],
    )
    .await;
    store
        .put_working_state(&session, "{}".to_owned(), time(9))
        .await
        .unwrap_err();
    store.close().await.unwrap();
    let store = database_reopened(&database).await;
    let after = store
        .memory(std::slice::from_ref(&theirs.own), theirs.active.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(format!("{after:?}"), format!("{held:?}"));
    let seen = store.session(&theirs.session, 10).await.unwrap().unwrap();
    assert_eq!(
        (seen.turns, seen.terminated_at, seen.latest[0].calls),
        (1, None, 1)
    );
    assert_eq!(seen.latest[0].turn.chain, chain(1));
}

/// A handle over tables that are protected again: others are refused.
async fn database_reopened(database: &Postgres) -> Arc<PostgresStore> {
    let mut raw = database.raw().await;
    for table in tables(&mut raw).await {
        let close = format!("ALTER TABLE ibex.{table} ENABLE ROW LEVEL SECURITY");
        raw.execute(AssertSqlSafe(close)).await.unwrap();
    }
    database.connect().await
}
