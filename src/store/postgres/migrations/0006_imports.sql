-- Exports of other stores that were loaded here, and how far. It names no tenant.
CREATE TABLE imports (
    export   uuid    PRIMARY KEY,
    batches  bigint  NOT NULL,
    finished boolean NOT NULL
);
