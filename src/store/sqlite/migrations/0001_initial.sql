-- Identifiers are 16 raw bytes, hashes 32, times integer microseconds since 1970 in UTC.

CREATE TABLE orgs (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name       TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    org        BLOB    NOT NULL REFERENCES orgs (id),
    name       TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    -- What the other tables point at, so that no row can pair an agent with another tenant.
    UNIQUE (org, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    org         BLOB    NOT NULL REFERENCES orgs (id),
    agent       BLOB,
    user        TEXT,
    name        TEXT    NOT NULL,
    permissions INTEGER NOT NULL,
    digest      BLOB    NOT NULL CHECK (length(digest) = 32),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER,
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX tokens_by_org ON tokens (org, created_at, id);

CREATE TABLE directives (
    org          BLOB    NOT NULL,
    agent        BLOB    NOT NULL,
    version      INTEGER NOT NULL CHECK (version > 0),
    content      TEXT    NOT NULL,
    mode         TEXT    NOT NULL,
    content_hash BLOB    NOT NULL CHECK (length(content_hash) = 32),
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (org, agent, version),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT;

-- A stack per agent: the newest row names the active version, the one below it is what a rollback returns to.
CREATE TABLE directive_activations (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    org      BLOB    NOT NULL,
    agent    BLOB    NOT NULL,
    version  INTEGER NOT NULL,
    FOREIGN KEY (org, agent, version) REFERENCES directives (org, agent, version)
) STRICT;

CREATE INDEX directive_activations_by_agent ON directive_activations (org, agent, position);

-- `user` is '' for agent-wide rows: NULLs are all different to a unique index, so they could not keep duplicates out.
CREATE TABLE memories (
    seq              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    org              BLOB    NOT NULL,
    agent            BLOB    NOT NULL,
    user             TEXT    NOT NULL,
    content          TEXT    NOT NULL,
    labels           TEXT    NOT NULL,
    confidence       REAL    NOT NULL,
    valid_from       INTEGER NOT NULL,
    valid_until      INTEGER,
    observed_at      INTEGER,
    source_kind      TEXT    NOT NULL,
    source_session   TEXT,
    source_turn      INTEGER,
    metadata         TEXT,
    pinned           INTEGER NOT NULL,
    status           TEXT    NOT NULL,
    revision         INTEGER NOT NULL,
    content_hash     BLOB    NOT NULL CHECK (length(content_hash) = 32),
    retrieval_count  INTEGER NOT NULL,
    votes_useful     INTEGER NOT NULL,
    votes_not_useful INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    retrieved_at     INTEGER,
    embedding_model  TEXT,
    embedding        BLOB,
    tokens_o200k     INTEGER NOT NULL,
    tokens_cl100k    INTEGER NOT NULL,
    tokens_claude    INTEGER NOT NULL,
    tokens_unknown   INTEGER NOT NULL,
    CHECK ((embedding IS NULL) = (embedding_model IS NULL)),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT;

CREATE UNIQUE INDEX memories_active_content ON memories (org, agent, user, content_hash) WHERE status = 'active';
CREATE INDEX memories_by_partition ON memories (org, agent, user, id);

-- AUTOINCREMENT: a revision is never used twice, also after the oldest entries were trimmed.
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT    NOT NULL,
    org      BLOB,
    agent    BLOB,
    user     TEXT,
    ref      BLOB    NOT NULL
) STRICT;
