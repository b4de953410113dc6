-- The refinery: keyed writes that are over. `outcomes` names memories and holds no text.

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
