-- Conversations: what is needed to render their bytes again, and checkpoints. `user` is '' for none, as in `memories`.

CREATE TABLE sessions (
    seq           INTEGER PRIMARY KEY,
    org           BLOB    NOT NULL,
    agent         BLOB    NOT NULL,
    user          TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    used_at       INTEGER NOT NULL,
    terminated_at INTEGER,
    turns         INTEGER NOT NULL DEFAULT 0,
    UNIQUE (org, agent, user, id),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT;

CREATE INDEX sessions_by_use ON sessions (used_at);

-- One row an epoch; the greatest one of a lane is the current one. `snapshot` holds identifiers of memories, one after the other.
CREATE TABLE session_lanes (
    session      INTEGER NOT NULL REFERENCES sessions (seq) ON DELETE CASCADE,
    lane         TEXT    NOT NULL,
    epoch        INTEGER NOT NULL CHECK (epoch > 0),
    nonce_epoch  INTEGER NOT NULL,
    directive    INTEGER,
    snapshot     BLOB    NOT NULL CHECK (length(snapshot) % 16 = 0),
    sha256       BLOB    NOT NULL CHECK (length(sha256) = 32),
    reason       TEXT,
    drops_blocks INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (session, lane, epoch)
) STRICT, WITHOUT ROWID;

-- `live` is FALSE once an epoch dropped the turn's block: the row stays for the checkpoints in it. From `calls` on: sums over the
-- provider calls of the turn.
CREATE TABLE session_turns (
    session           INTEGER NOT NULL REFERENCES sessions (seq) ON DELETE CASCADE,
    position          INTEGER NOT NULL,
    lane              TEXT    NOT NULL,
    live              INTEGER NOT NULL DEFAULT TRUE,
    chain             BLOB    NOT NULL CHECK (length(chain) = 16),
    anchor            BLOB    NOT NULL CHECK (length(anchor) = 16),
    nonce_epoch       INTEGER NOT NULL,
    memories          BLOB    NOT NULL CHECK (length(memories) % 16 = 0),
    state_from        INTEGER,
    state_to          INTEGER,
    digest            BLOB CHECK (length(digest) = 16),
    at                INTEGER NOT NULL,
    calls             INTEGER NOT NULL DEFAULT 0,
    prompt_tokens     INTEGER NOT NULL DEFAULT 0,
    cached_tokens     INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    ms                INTEGER NOT NULL DEFAULT 0,
    stream            INTEGER NOT NULL DEFAULT FALSE,
    complete          INTEGER NOT NULL DEFAULT TRUE,
    ended_at          INTEGER,
    PRIMARY KEY (session, position),
    UNIQUE (session, lane, chain),
    CHECK ((state_from IS NULL) = (state_to IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE session_states (
    session INTEGER NOT NULL REFERENCES sessions (seq) ON DELETE CASCADE,
    version INTEGER NOT NULL CHECK (version > 0),
    json    TEXT    NOT NULL,
    turn    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (session, version)
) STRICT;

-- One row: whether the last process that kept sessions here stored all of them before it ended.
CREATE TABLE session_runs (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    whole INTEGER NOT NULL
) STRICT;

INSERT INTO session_runs (id, whole) VALUES (1, TRUE);

-- The revision at which a partition last lost a memory: one row to look at before each handoff.
CREATE TABLE forget_fences (
    org      BLOB    NOT NULL,
    agent    BLOB    NOT NULL,
    user     TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (org, agent, user),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT, WITHOUT ROWID;

INSERT INTO forget_fences (org, agent, user, revision)
SELECT org, agent, user, max(revision) FROM memories WHERE status = 'forgotten' GROUP BY org, agent, user;

ALTER TABLE directives ADD COLUMN revoked_at INTEGER;
