-- The refinery: what a write decides besides its row.

-- `slot` is a hash of what a text says something about; `review` is why a row is in quarantine.
ALTER TABLE memories ADD COLUMN text_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memories ADD COLUMN supersedes BLOB NOT NULL DEFAULT x'';
ALTER TABLE memories ADD COLUMN slot BLOB;
ALTER TABLE memories ADD COLUMN review TEXT;

CREATE INDEX memories_by_slot ON memories (org, agent, user, slot, valid_from) WHERE slot IS NOT NULL;
CREATE INDEX memories_tombstones ON memories (org, agent, user, content_hash) WHERE status = 'forgotten';
CREATE INDEX memories_in_review ON memories (org, agent, user, id) WHERE status = 'quarantined';

-- `source` has this relation to `target`. Both are memories of one partition.
CREATE TABLE memory_relations (
    org    BLOB    NOT NULL,
    agent  BLOB    NOT NULL,
    user   TEXT    NOT NULL,
    source BLOB    NOT NULL CHECK (length(source) = 16),
    target BLOB    NOT NULL CHECK (length(target) = 16),
    kind   TEXT    NOT NULL,
    by     TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (org, agent, user, source, target, kind),
    CHECK (source <> target),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX memory_relations_by_target ON memory_relations (org, agent, user, target);

-- Pairs that no rule could judge: somebody has to say what the newer memory is to the older one.
CREATE TABLE escalations (
    id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    org        BLOB    NOT NULL,
    agent      BLOB    NOT NULL,
    user       TEXT    NOT NULL,
    newer      BLOB    NOT NULL CHECK (length(newer) = 16),
    older      BLOB    NOT NULL CHECK (length(older) = 16),
    guess      TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    decision   TEXT,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    UNIQUE (org, agent, user, newer, older),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT;

CREATE INDEX escalations_pending ON escalations (org, agent, user, id) WHERE status = 'pending';

-- Keyed writes that are over. `outcomes` names memories and holds no text.
CREATE TABLE ledger (
    org      BLOB    NOT NULL,
    agent    BLOB    NOT NULL,
    key      TEXT    NOT NULL,
    asked    BLOB    NOT NULL CHECK (length(asked) = 32),
    outcomes TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (org, agent, key),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX ledger_by_age ON ledger (at);

-- What of an agent's conversations becomes memory, and the turns from which nothing could be taken. A letter holds no text.
ALTER TABLE agents ADD COLUMN capture TEXT NOT NULL DEFAULT 'off';

CREATE TABLE dead_letters (
    seq      INTEGER PRIMARY KEY,
    org      BLOB    NOT NULL,
    agent    BLOB    NOT NULL,
    user     TEXT    NOT NULL,
    session  TEXT    NOT NULL,
    turn     INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    attempts INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) STRICT;

CREATE INDEX dead_letters_by_partition ON dead_letters (org, agent, user, seq);
CREATE INDEX dead_letters_by_age ON dead_letters (at);
