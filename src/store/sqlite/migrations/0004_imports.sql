-- Exports of other stores that were loaded here, and how far.
CREATE TABLE imports (
    export   BLOB    NOT NULL PRIMARY KEY CHECK (length(export) = 16),
    batches  INTEGER NOT NULL,
    finished INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
