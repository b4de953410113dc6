//! `/v1/sessions`: what a session is made of, its end, and its working state.

mod view;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;

use crate::app::{App, LatestState};
use crate::auth::Permissions;
use crate::error::{ApiError, Code, FieldError, shown};
use crate::ids::SessionId;
use crate::session::record::SessionView as StoredSession;
use crate::session::working_state::{Evicted, WorkingState};
use crate::session::{SessionKey, is_derived};
use crate::store::{StoreError, StoredState};
use crate::telemetry::Trail;
use crate::tokens::Family;

use super::chat::apart;
use super::json::{Asked, Segment, absent, ask, invalid, query, store_failed, told};
use view::{SessionView, StateView};

/// Turns that are shown unless the client asks for another number, and the most.
const TURNS: usize = 50;
const MOST_TURNS: usize = 200;

/// Greatest working state in bytes: many times what its tokens allow, and few enough to judge each item.
const MAX_STATE_BYTES: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnsQuery {
    turns: Option<usize>,
}

/// The session that the path names, in the scope of whoever asks: somebody else's is another session, and so not there.
fn key(asked: &Asked, id: &str) -> Result<SessionKey, ApiError> {
    let id: SessionId = id.parse().map_err(|_| absent())?;
    Ok(SessionKey::new(asked.principal().scope(), id))
}

/// The same, for what only a session with a name of its client's can have.
fn named_key(asked: &Asked, id: &str) -> Result<SessionKey, ApiError> {
    let key = key(asked, id)?;
    if is_derived(&key.id) {
        return Err(absent());
    }
    Ok(key)
}

pub(super) async fn get(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        get_one(app, &id, request, trail).await
    })
    .await
}

async fn get_one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::SESSION_READ, trail).await?;
    let turns = query::<TurnsQuery>(&head)?.turns.unwrap_or(TURNS);
    if turns > MOST_TURNS {
        let fault = FieldError {
            field: "turns".to_owned(),
            code: "RANGE_ERROR",
            message: format!("must be 0 to {MOST_TURNS}"),
        };
        return Err(refused(vec![fault]));
    }
    let key = key(&asked, id)?;
    let session = stored(app, &key, turns).await?.ok_or_else(absent)?;
    let view = SessionView::of(&key, &session, app.clock.now());
    Ok(asked.answer(app, StatusCode::OK, &view))
}

pub(super) async fn terminate(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        terminate_one(app, &id, request, trail).await
    })
    .await
}

async fn terminate_one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::SESSION_TERMINATE, trail).await?;
    let key = named_key(&asked, id)?;
    app.store
        .terminate_session(&key, app.clock.now())
        .await
        .map_err(|e| store_failed(&e))?
        .ok_or_else(absent)?;
    let session = stored(app, &key, TURNS).await?.ok_or_else(absent)?;
    let view = SessionView::of(&key, &session, app.clock.now());
    Ok(asked.answer(app, StatusCode::OK, &view))
}

async fn stored(
    app: &App,
    key: &SessionKey,
    turns: usize,
) -> Result<Option<StoredSession>, ApiError> {
    app.store
        .session(key, turns)
        .await
        .map_err(|e| store_failed(&e))
}

pub(super) async fn working_state(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        read_state(app, &id, request, trail).await
    })
    .await
}

async fn read_state(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::SESSION_READ, trail).await?;
    let key = named_key(&asked, id)?;
    let newest = newest(app, &key).await?.ok_or_else(absent)?;
    let held = newest.in_force().map_err(|e| store_failed(&e))?;
    Ok(asked.answer(app, StatusCode::OK, &held.view(None)))
}

/// The working state in force.
#[derive(Default)]
struct Held {
    version: u32,
    at: Option<Timestamp>,
    state: WorkingState,
}

impl Held {
    fn view<'a>(&'a self, evicted: Option<&'a [Evicted]>) -> StateView<'a> {
        StateView {
            version: self.version,
            updated_at: self.at,
            state: &self.state,
            evicted,
        }
    }
}

/// What the store holds of a session's working state.
struct Newest {
    stored: Option<StoredState>,
    turns: u32,
}

impl Newest {
    /// The newest state, carried over the turns that were settled since; the empty one where none was written.
    fn in_force(self) -> Result<Held, StoreError> {
        let Some(StoredState {
            version,
            json,
            turn,
            at,
        }) = self.stored
        else {
            return Ok(Held::default());
        };
        let state: WorkingState =
            serde_json::from_str(&json).map_err(|_| StoreError::Damaged("working state"))?;
        let is_older = turn < self.turns;
        Ok(Held {
            version,
            at: Some(at),
            state: if is_older { state.carried() } else { state },
        })
    }
}

/// Nothing where there is no session.
async fn newest(app: &App, key: &SessionKey) -> Result<Option<Newest>, ApiError> {
    let newest = app.store.working_state(key, None).await;
    let newest = newest.map_err(|e| store_failed(&e))?;
    let session = stored(app, key, 0).await?;
    Ok(session.map(|session| Newest {
        stored: newest,
        turns: session.turns,
    }))
}

pub(super) async fn put_working_state(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        write_state(app, &id, request, trail).await
    })
    .await
}

async fn write_state(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::SESSION_CREATE, trail).await?;
    let key = named_key(&asked, id)?;
    let (state, evicted) = bounded(app, &key, parse(&asked.body)?).await?;
    // A damaged state must not stand in the way of the one that replaces it.
    let held = newest(app, &key)
        .await?
        .and_then(|newest| newest.in_force().ok());
    // A repeated write is no change. What is compared is the state in force, so that a task which no longer counts is written anew.
    let held = match held.filter(|held| held.version > 0 && held.state == state) {
        Some(held) => held,
        None => put(app, &key, state).await?,
    };
    Ok(asked.answer(app, StatusCode::OK, &held.view(Some(&evicted))))
}

async fn put(app: &App, key: &SessionKey, state: WorkingState) -> Result<Held, ApiError> {
    let json = serde_json::to_string(&state)
        .map_err(|e| ApiError::new(Code::InternalError, e.to_string()))?;
    let stored = app
        .store
        .put_working_state(key, json, app.clock.now())
        .await
        .map_err(|e| store_failed(&e))?;
    // The next turn tells of it at once.
    let latest = LatestState {
        version: stored.version,
        state: Arc::new(state.clone()),
    };
    app.sessions.states.note(key, Some(latest));
    Ok(Held {
        version: stored.version,
        at: Some(stored.at),
        state,
    })
}

/// Reads a state. The place of a fault is told by its path, never by a value.
fn parse(body: &[u8]) -> Result<WorkingState, ApiError> {
    if body.len() > MAX_STATE_BYTES {
        let message = format!("a working state is at most {MAX_STATE_BYTES} bytes");
        return Err(ApiError::new(Code::PayloadTooLarge, message));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let state = serde_path_to_error::deserialize(&mut json).map_err(|fault| {
        let error = invalid(fault.inner());
        if error.code != Code::ValidationError {
            return error;
        }
        error.fields(vec![FieldError {
            field: shown(&fault.path().to_string()).to_owned(),
            code: "INVALID_FORMAT",
            message: "is missing, unknown or of another type".to_owned(),
        }])
    })?;
    json.end().map_err(|e| invalid(&e))?;
    Ok(state)
}

/// Brings a state inside its bounds, on a thread that may take its time: its writer chooses how hard its text is to count.
async fn bounded(
    app: &App,
    key: &SessionKey,
    state: WorkingState,
) -> Result<(WorkingState, Vec<Evicted>), ApiError> {
    let (counter, org) = (app.counter.clone(), key.org);
    let count = move |text: &str| counter.count(org, Family::O200kBase, text);
    let work = tokio::task::spawn_blocking(move || state.bounded(count));
    work.await
        .map_err(|_| ApiError::new(Code::InternalError, "the working state could not be judged"))?
        .map_err(refused)
}

fn refused(faults: Vec<FieldError>) -> ApiError {
    ApiError::new(Code::ValidationError, "the request is not valid").fields(faults)
}
