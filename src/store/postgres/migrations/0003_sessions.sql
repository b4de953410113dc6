-- Conversations: what is needed to render their bytes again, and checkpoints. The tables of a session name its organisation too, so that
-- row-level security binds each of them by itself.

CREATE TABLE sessions (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org           uuid   NOT NULL,
    agent         uuid   NOT NULL,
    user_id       text   COLLATE "C" NOT NULL,
    id            text   COLLATE "C" NOT NULL,
    created_at    bigint NOT NULL,
    used_at       bigint NOT NULL,
    terminated_at bigint,
    turns         bigint NOT NULL DEFAULT 0,
    UNIQUE (org, agent, user_id, id),
    UNIQUE (org, seq),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

CREATE INDEX sessions_by_use ON sessions (org, used_at);

-- One row an epoch; the greatest one of a lane is the current one.
CREATE TABLE session_lanes (
    org          uuid    NOT NULL,
    session      bigint  NOT NULL,
    lane         text    COLLATE "C" NOT NULL,
    epoch        bigint  NOT NULL CHECK (epoch > 0),
    nonce_epoch  bigint  NOT NULL,
    directive    bigint,
    snapshot     uuid[]  NOT NULL,
    sha256       bytea   NOT NULL CHECK (octet_length(sha256) = 32),
    reason       text,
    drops_blocks boolean NOT NULL,
    at           bigint  NOT NULL,
    PRIMARY KEY (session, lane, epoch),
    FOREIGN KEY (org, session) REFERENCES sessions (org, seq) ON DELETE CASCADE
);

-- `live` is FALSE once an epoch dropped the turn's block: the row stays for the checkpoints in it. From `calls` on: sums over the
-- provider calls of the turn.
CREATE TABLE session_turns (
    org               uuid    NOT NULL,
    session           bigint  NOT NULL,
    position          bigint  NOT NULL,
    lane              text    COLLATE "C" NOT NULL,
    live              boolean NOT NULL DEFAULT TRUE,
    chain             bytea   NOT NULL CHECK (octet_length(chain) = 16),
    anchor            bytea   NOT NULL CHECK (octet_length(anchor) = 16),
    nonce_epoch       bigint  NOT NULL,
    memories          uuid[]  NOT NULL,
    state_from        bigint,
    state_to          bigint,
    digest            bytea   CHECK (octet_length(digest) = 16),
    at                bigint  NOT NULL,
    calls             bigint  NOT NULL DEFAULT 0,
    prompt_tokens     bigint  NOT NULL DEFAULT 0,
    cached_tokens     bigint  NOT NULL DEFAULT 0,
    completion_tokens bigint  NOT NULL DEFAULT 0,
    ms                bigint  NOT NULL DEFAULT 0,
    stream            boolean NOT NULL DEFAULT FALSE,
    complete          boolean NOT NULL DEFAULT TRUE,
    ended_at          bigint,
    PRIMARY KEY (session, position),
    UNIQUE (session, lane, chain),
    CHECK ((state_from IS NULL) = (state_to IS NULL)),
    FOREIGN KEY (org, session) REFERENCES sessions (org, seq) ON DELETE CASCADE
);

CREATE TABLE session_states (
    org     uuid   NOT NULL,
    session bigint NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    json    text   NOT NULL,
    turn    bigint NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (session, version),
    FOREIGN KEY (org, session) REFERENCES sessions (org, seq) ON DELETE CASCADE
);

-- The processes that keep sessions here, and when each was last heard of by this server's clock. One that ends takes its row along. It
-- names no tenant, and has no row-level security.
CREATE TABLE session_runs (
    id      uuid   PRIMARY KEY,
    seen_at bigint NOT NULL
);

CREATE FUNCTION micros_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Says that a process lives, whose connection holds the lock of its row.
CREATE FUNCTION beat_run(run uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_runs (id, seen_at) VALUES (run, micros_now()) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;
    RETURN TRUE;
END $$;

-- Notes that a process begins. Answers whether every other one that did not end still lives: somebody holds the lock of its row, and it
-- was heard of within a minute. The row of one that does not is removed after a day. One process begins at a time, because they try each
-- other's locks.
CREATE FUNCTION begin_run(run uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    whole boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_of('00000000-0000-0000-6962-657872756e73'));
    DELETE FROM session_runs WHERE seen_at < micros_now() - 86400 * 1000000::bigint;
    whole := NOT EXISTS (SELECT 1 FROM session_runs r WHERE r.id <> run
        AND (r.seen_at < micros_now() - 60 * 1000000::bigint OR pg_try_advisory_xact_lock(lock_of(r.id))));
    PERFORM beat_run(run);
    RETURN whole;
END $$;

CREATE FUNCTION knows_session(of_org uuid, of_agent uuid, of_user text, wanted text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN EXISTS (SELECT 1 FROM sessions s WHERE s.org = of_org AND s.agent = of_agent AND s.user_id = of_user AND s.id = wanted);
END $$;

-- A record of a session as the program sends it: its lane, and the columns of its kind.
CREATE TYPE session_record AS (
    kind text, lane text, at bigint,
    epoch bigint, nonce_epoch bigint, directive bigint, snapshot uuid[], sha256 bytea, reason text, drops_blocks boolean,
    chain bytea, anchor bytea, memories uuid[], state_from bigint, state_to bigint, digest bytea, gone uuid[],
    prompt_tokens bigint, cached_tokens bigint, completion_tokens bigint, ms bigint, stream boolean, complete boolean
);

CREATE FUNCTION record_opened(of_org uuid, of_session bigint, r session_record) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_lanes (org, session, lane, epoch, nonce_epoch, directive, snapshot, sha256, reason, drops_blocks, at)
    VALUES (of_org, of_session, r.lane, r.epoch, r.nonce_epoch, r.directive, r.snapshot, r.sha256, r.reason, r.drops_blocks, r.at)
    ON CONFLICT (session, lane, epoch) DO NOTHING;
    -- An epoch that is known has dropped its blocks already, and the turns since then are its own.
    IF FOUND AND r.drops_blocks THEN
        UPDATE session_turns t SET live = FALSE WHERE t.org = of_org AND t.session = of_session AND t.lane = r.lane AND t.live;
    END IF;
END $$;

-- Answers how many turns the session has more: nothing at all when the record changed nothing.
CREATE FUNCTION record_settled(of_org uuid, of_session bigint, turns bigint, r session_record) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    -- The lane is unknown when the session was deleted meanwhile: a turn must not bring it back.
    INSERT INTO session_turns (org, session, position, lane, chain, anchor, nonce_epoch, memories, state_from, state_to, digest, at)
    SELECT of_org, of_session, turns, r.lane, r.chain, r.anchor, r.nonce_epoch, r.memories, r.state_from, r.state_to, r.digest, r.at
    WHERE EXISTS (SELECT 1 FROM session_lanes l WHERE l.org = of_org AND l.session = of_session AND l.lane = r.lane)
    ON CONFLICT (session, lane, chain) DO NOTHING;
    IF FOUND THEN
        RETURN 1;
    END IF;
    -- A turn whose block was dropped gets the one that it has in a later epoch.
    UPDATE session_turns t SET live = TRUE, nonce_epoch = r.nonce_epoch, memories = r.memories, state_from = r.state_from,
                               state_to = r.state_to, digest = r.digest
    WHERE t.org = of_org AND t.session = of_session AND t.lane = r.lane AND t.chain = r.chain AND NOT t.live
      AND t.nonce_epoch < r.nonce_epoch;
    RETURN CASE WHEN FOUND THEN 0 END;
END $$;

-- Rewrites the turns that held one of `gone`.
CREATE FUNCTION record_forgotten(of_org uuid, of_session bigint, r session_record) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE session_turns t SET digest = NULL, memories = ARRAY
        (SELECT u.memory FROM unnest(t.memories) WITH ORDINALITY AS u (memory, place) WHERE u.memory <> ALL (r.gone) ORDER BY u.place)
    WHERE t.org = of_org AND t.session = of_session AND t.lane = r.lane AND t.memories && r.gone;
END $$;

-- Answers whether the turn is known.
CREATE FUNCTION record_ended(of_org uuid, of_session bigint, r session_record) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE session_turns t SET calls = t.calls + 1, prompt_tokens = t.prompt_tokens + r.prompt_tokens,
                               cached_tokens = t.cached_tokens + r.cached_tokens,
                               completion_tokens = t.completion_tokens + r.completion_tokens, ms = t.ms + r.ms,
                               stream = t.stream OR r.stream, complete = t.complete AND r.complete, ended_at = greatest(t.ended_at, r.at)
    WHERE t.org = of_org AND t.session = of_session AND t.lane = r.lane AND t.chain = r.chain;
    RETURN FOUND;
END $$;

-- Applies the records of one session in their order, and notes its use once. A use that began after the client's end of the session
-- takes that end back; a record that comes late does not. The session's row is locked.
CREATE FUNCTION record_session(of_org uuid, of_session bigint, records jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r session_record;
    held bigint := (SELECT s.turns FROM sessions s WHERE s.org = of_org AND s.seq = of_session);
    began bigint;
    until bigint;
    more bigint;
BEGIN
    FOR r IN SELECT * FROM jsonb_populate_recordset(NULL::session_record, records) LOOP
        IF r.kind = 'opened' THEN
            PERFORM record_opened(of_org, of_session, r);
        ELSIF r.kind = 'settled' THEN
            more := record_settled(of_org, of_session, held, r);
            CONTINUE WHEN more IS NULL;
            held := held + more;
        ELSIF r.kind = 'ended' THEN
            CONTINUE WHEN NOT record_ended(of_org, of_session, r);
        ELSE
            PERFORM record_forgotten(of_org, of_session, r);
            CONTINUE;
        END IF;
        began := greatest(began, r.at - coalesce(r.ms, 0) * 1000);
        until := greatest(until, r.at);
    END LOOP;
    IF until IS NOT NULL THEN
        UPDATE sessions s SET used_at = greatest(s.used_at, until), turns = held,
                              terminated_at = CASE WHEN s.terminated_at < began THEN NULL ELSE s.terminated_at END
        WHERE s.org = of_org AND s.seq = of_session;
    END IF;
END $$;

-- Applies records of sessions, all or none. The sessions come in one order, whoever sends them, and each is locked from its turn on: two
-- replicas with the same sessions wait for each other instead of deadlocking. One that is opened is created where it is missing; of any
-- other one that is missing the records are passed over.
CREATE FUNCTION record_sessions(batch jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s record;
    of_session bigint;
BEGIN
    FOR s IN SELECT * FROM jsonb_to_recordset(batch) AS x (org uuid, agent uuid, user_id text, id text, opened_at bigint, records jsonb) LOOP
        PERFORM set_config('ibex.org', s.org::text, TRUE);
        IF s.opened_at IS NOT NULL THEN
            INSERT INTO sessions (org, agent, user_id, id, created_at, used_at) VALUES (s.org, s.agent, s.user_id, s.id, s.opened_at, s.opened_at)
            ON CONFLICT (org, agent, user_id, id) DO NOTHING;
        END IF;
        SELECT o.seq INTO of_session FROM sessions o
        WHERE o.org = s.org AND o.agent = s.agent AND o.user_id = s.user_id AND o.id = s.id FOR UPDATE;
        IF FOUND THEN
            PERFORM record_session(s.org, of_session, s.records);
        END IF;
    END LOOP;
END $$;

-- Deletes what is older than `before`, at most `most` rows, of the next organisations behind one in their order. Answers how many rows,
-- and the last organisation it came to: nothing when there was none. Rows that somebody holds are left for the next time.
CREATE FUNCTION prune(what text, before bigint, most bigint, behind uuid, walk bigint)
RETURNS TABLE (deleted bigint, reached uuid) LANGUAGE plpgsql AS $$
DECLARE
    tenant uuid;
    gone bigint;
BEGIN
    deleted := 0;
    FOR tenant IN SELECT o.id FROM orgs o WHERE o.id > behind ORDER BY o.id LIMIT walk LOOP
        PERFORM set_config('ibex.org', tenant::text, TRUE);
        CASE what
            WHEN 'sessions' THEN
                DELETE FROM sessions d USING (SELECT s.seq FROM sessions s WHERE s.org = tenant AND s.used_at < before
                    ORDER BY s.used_at LIMIT most - deleted FOR UPDATE SKIP LOCKED) AS old WHERE d.org = tenant AND d.seq = old.seq;
            WHEN 'ledger' THEN
                DELETE FROM ledger d USING (SELECT l.agent, l.key FROM ledger l WHERE l.org = tenant AND l.at < before
                    ORDER BY l.at LIMIT most - deleted FOR UPDATE SKIP LOCKED) AS old
                WHERE d.org = tenant AND d.agent = old.agent AND d.key = old.key;
            WHEN 'dead_letters' THEN
                DELETE FROM dead_letters d USING (SELECT l.seq FROM dead_letters l WHERE l.org = tenant AND l.at < before
                    ORDER BY l.at LIMIT most - deleted FOR UPDATE SKIP LOCKED) AS old WHERE d.org = tenant AND d.seq = old.seq;
        END CASE;
        GET DIAGNOSTICS gone = ROW_COUNT;
        deleted := deleted + gone;
        reached := tenant;
        EXIT WHEN deleted >= most;
    END LOOP;
    RETURN NEXT;
END $$;
