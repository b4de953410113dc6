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

-- Notes that a process begins. Answers whether no other one is left that was not heard of for a minute: such a one has died, and may
-- have taken records along. Its row is removed after a day.
CREATE FUNCTION begin_run(run uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    whole boolean;
BEGIN
    DELETE FROM session_runs WHERE seen_at < micros_now() - 86400 * 1000000::bigint;
    whole := NOT EXISTS (SELECT 1 FROM session_runs WHERE id <> run AND seen_at < micros_now() - 60 * 1000000::bigint);
    INSERT INTO session_runs (id, seen_at) VALUES (run, micros_now()) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;
    RETURN whole;
END $$;

CREATE FUNCTION knows_session(of_org uuid, of_agent uuid, of_user text, wanted text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN EXISTS (SELECT 1 FROM sessions s WHERE s.org = of_org AND s.agent = of_agent AND s.user_id = of_user AND s.id = wanted);
END $$;

-- Notes a use that began at `began` and went on until `until`. One that began after the client's end of the session takes that end back;
-- a record that comes late does not.
CREATE FUNCTION session_used(of_org uuid, of_session bigint, began bigint, until bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE sessions SET used_at = greatest(used_at, until),
                        terminated_at = CASE WHEN terminated_at < began THEN NULL ELSE terminated_at END
    WHERE org = of_org AND seq = of_session
$$;

-- One record, by its kind. The session's row is locked.
CREATE FUNCTION record_opened(of_session bigint, r jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of_org constant uuid := r ->> 'org';
    at constant bigint := r ->> 'at';
BEGIN
    PERFORM session_used(of_org, of_session, at, at);
    INSERT INTO session_lanes (org, session, lane, epoch, nonce_epoch, directive, snapshot, sha256, reason, drops_blocks, at)
    SELECT of_org, of_session, x.lane, x.epoch, x.nonce_epoch, x.directive, x.snapshot, decode(x.sha256, 'hex'), x.reason, x.drops_blocks, x.at
    FROM jsonb_to_record(r) AS x (lane text, epoch bigint, nonce_epoch bigint, directive bigint, snapshot uuid[], sha256 text, reason text,
                                  drops_blocks boolean, at bigint)
    ON CONFLICT (session, lane, epoch) DO NOTHING;
    -- An epoch that is known has dropped its blocks already, and the turns since then are its own.
    IF FOUND AND (r ->> 'drops_blocks')::boolean THEN
        UPDATE session_turns SET live = FALSE WHERE org = of_org AND session = of_session AND lane = r ->> 'lane' AND live;
    END IF;
END $$;

CREATE FUNCTION record_settled(of_session bigint, r jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
BEGIN
    SELECT * INTO x FROM jsonb_to_record(r) AS x (org uuid, lane text, chain text, anchor text, nonce_epoch bigint, memories uuid[],
                                                  state_from bigint, state_to bigint, digest text, at bigint);
    -- A turn whose block was dropped gets the one that it has in a later epoch.
    UPDATE session_turns t SET live = TRUE, nonce_epoch = x.nonce_epoch, memories = x.memories, state_from = x.state_from,
                               state_to = x.state_to, digest = decode(x.digest, 'hex')
    WHERE t.org = x.org AND t.session = of_session AND t.lane = x.lane AND t.chain = decode(x.chain, 'hex') AND NOT t.live
      AND t.nonce_epoch < x.nonce_epoch;
    IF NOT FOUND THEN
        -- The lane is unknown when the session was deleted meanwhile: a turn must not bring it back.
        INSERT INTO session_turns (org, session, position, lane, chain, anchor, nonce_epoch, memories, state_from, state_to, digest, at)
        SELECT s.org, s.seq, s.turns, x.lane, decode(x.chain, 'hex'), decode(x.anchor, 'hex'), x.nonce_epoch, x.memories, x.state_from,
               x.state_to, decode(x.digest, 'hex'), x.at
        FROM sessions s WHERE s.org = x.org AND s.seq = of_session
          AND EXISTS (SELECT 1 FROM session_lanes l WHERE l.org = s.org AND l.session = s.seq AND l.lane = x.lane)
        ON CONFLICT (session, lane, chain) DO NOTHING;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        UPDATE sessions s SET turns = s.turns + 1 WHERE s.org = x.org AND s.seq = of_session;
    END IF;
    PERFORM session_used(x.org, of_session, x.at, x.at);
END $$;

-- Rewrites the turns that held one of `gone`.
CREATE FUNCTION record_forgotten(of_session bigint, r jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
BEGIN
    SELECT * INTO x FROM jsonb_to_record(r) AS x (org uuid, lane text, gone uuid[]);
    UPDATE session_turns t SET digest = NULL, memories = ARRAY
        (SELECT u.memory FROM unnest(t.memories) WITH ORDINALITY AS u (memory, place) WHERE u.memory <> ALL (x.gone) ORDER BY u.place)
    WHERE t.org = x.org AND t.session = of_session AND t.lane = x.lane AND t.memories && x.gone;
END $$;

CREATE FUNCTION record_ended(of_session bigint, r jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
BEGIN
    SELECT * INTO x FROM jsonb_to_record(r) AS x (org uuid, lane text, chain text, prompt_tokens bigint, cached_tokens bigint,
                                                  completion_tokens bigint, ms bigint, stream boolean, complete boolean, at bigint);
    UPDATE session_turns t SET calls = t.calls + 1, prompt_tokens = t.prompt_tokens + x.prompt_tokens,
                               cached_tokens = t.cached_tokens + x.cached_tokens,
                               completion_tokens = t.completion_tokens + x.completion_tokens, ms = t.ms + x.ms,
                               stream = t.stream OR x.stream, complete = t.complete AND x.complete, ended_at = greatest(t.ended_at, x.at)
    WHERE t.org = x.org AND t.session = of_session AND t.lane = x.lane AND t.chain = decode(x.chain, 'hex');
    IF FOUND THEN
        PERFORM session_used(x.org, of_session, x.at - x.ms * 1000, x.at);
    END IF;
END $$;

-- Applies records in order, all or none. The sessions that they name are locked first, and created where a record opens them, in one
-- order: two replicas with the same sessions wait for each other instead of deadlocking.
CREATE FUNCTION record_sessions(records jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s record;
    r jsonb;
    of_session bigint;
BEGIN
    FOR s IN SELECT x.org, x.agent, x.user_id, x.id, (array_agg(x.at ORDER BY x.place) FILTER (WHERE x.kind = 'opened'))[1] AS opened_at
             FROM ROWS FROM (jsonb_to_recordset(records) AS (kind text, org uuid, agent uuid, user_id text, id text, at bigint))
                  WITH ORDINALITY AS x (kind, org, agent, user_id, id, at, place)
             GROUP BY x.org, x.agent, x.user_id, x.id ORDER BY x.org, x.agent, x.user_id COLLATE "C", x.id COLLATE "C"
    LOOP
        PERFORM set_config('ibex.org', s.org::text, TRUE);
        IF s.opened_at IS NOT NULL THEN
            INSERT INTO sessions (org, agent, user_id, id, created_at, used_at) VALUES (s.org, s.agent, s.user_id, s.id, s.opened_at, s.opened_at)
            ON CONFLICT (org, agent, user_id, id) DO NOTHING;
        END IF;
        PERFORM 1 FROM sessions o WHERE o.org = s.org AND o.agent = s.agent AND o.user_id = s.user_id AND o.id = s.id FOR UPDATE;
    END LOOP;
    FOR r IN SELECT x.entry FROM jsonb_array_elements(records) WITH ORDINALITY AS x (entry, place) ORDER BY x.place LOOP
        PERFORM set_config('ibex.org', r ->> 'org', TRUE);
        SELECT o.seq INTO of_session FROM sessions o
        WHERE o.org = (r ->> 'org')::uuid AND o.agent = (r ->> 'agent')::uuid AND o.user_id = r ->> 'user_id' AND o.id = r ->> 'id';
        CONTINUE WHEN NOT FOUND;
        CASE r ->> 'kind'
            WHEN 'opened' THEN PERFORM record_opened(of_session, r);
            WHEN 'settled' THEN PERFORM record_settled(of_session, r);
            WHEN 'forgotten' THEN PERFORM record_forgotten(of_session, r);
            WHEN 'ended' THEN PERFORM record_ended(of_session, r);
        END CASE;
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
