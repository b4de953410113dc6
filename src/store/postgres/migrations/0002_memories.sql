-- `members` holds a hash of each member of `metadata` that is a text, a number or a truth value; `slot` a hash of what a text says
-- something about; `words` a hash over partition and word of each term of the text, as the program takes texts apart; `review` is why a row
-- is in quarantine.
CREATE TABLE memories (
    id               uuid    PRIMARY KEY,
    org              uuid    NOT NULL,
    agent            uuid    NOT NULL,
    user_id          text    COLLATE "C" NOT NULL,
    content          text    NOT NULL,
    labels           text    NOT NULL,
    confidence       real    NOT NULL,
    valid_from       bigint  NOT NULL,
    valid_until      bigint,
    observed_at      bigint,
    source_kind      text    NOT NULL,
    source_session   text,
    source_turn      bigint,
    metadata         text,
    members          uuid[]  NOT NULL,
    words            bigint[] NOT NULL,
    pinned           boolean NOT NULL,
    status           text    NOT NULL,
    revision         bigint  NOT NULL,
    text_revision    bigint  NOT NULL,
    supersedes       uuid[]  NOT NULL,
    content_hash     bytea   NOT NULL CHECK (octet_length(content_hash) = 32),
    retrieval_count  bigint  NOT NULL,
    votes_useful     bigint  NOT NULL,
    votes_not_useful bigint  NOT NULL,
    created_at       bigint  NOT NULL,
    updated_at       bigint  NOT NULL,
    retrieved_at     bigint,
    embedding_model  text,
    tokens_o200k     bigint  NOT NULL,
    tokens_cl100k    bigint  NOT NULL,
    tokens_claude    bigint  NOT NULL,
    tokens_unknown   bigint  NOT NULL,
    slot             bytea   CHECK (octet_length(slot) = 16),
    review           text,
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
) WITH (fillfactor = 85);

CREATE UNIQUE INDEX memories_active_content ON memories (org, agent, user_id, content_hash) WHERE status = 'active';
CREATE INDEX memories_by_partition ON memories (org, agent, user_id, id);
-- Pages of a partition, counts, and what lacks a vector, without a look at the rows.
CREATE INDEX memories_active ON memories (org, agent, user_id, id) INCLUDE (embedding_model) WHERE status = 'active';
-- A hot set is chosen of these and of the newest ones, where nobody has chosen it better.
CREATE INDEX memories_pinned ON memories (org, agent, user_id, id) WHERE status = 'active' AND pinned;
CREATE INDEX memories_by_slot ON memories (org, agent, user_id, slot, valid_from) WHERE slot IS NOT NULL;
CREATE INDEX memories_tombstones ON memories (org, agent, user_id, content_hash) WHERE status = 'forgotten';
CREATE INDEX memories_in_review ON memories (org, agent, user_id, id) WHERE status = 'quarantined';

-- Vectors stand apart from the rows, which change with every use: a new version of a row must not be a new node of the vector index.
-- `live` says whether the memory is active. Rows are kept whole in their page as long as they fit, because a search reads all of them.
CREATE TABLE memory_vectors (
    memory    uuid    PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    org       uuid    NOT NULL,
    agent     uuid    NOT NULL,
    user_id   text    COLLATE "C" NOT NULL,
    model     text    NOT NULL,
    embedding vector  NOT NULL,
    live      boolean NOT NULL
) WITH (toast_tuple_target = 8160);

CREATE INDEX memory_vectors_by_partition ON memory_vectors (org, agent, user_id) WHERE live;
-- One for each dimension of the embedders that come with the program; `ibex migrate` adds others (vectors.rs).
CREATE INDEX memory_vectors_hnsw_256 ON memory_vectors USING hnsw ((embedding::vector(256)) vector_cosine_ops)
    WHERE live AND vector_dims(embedding) = 256;
CREATE INDEX memory_vectors_hnsw_384 ON memory_vectors USING hnsw ((embedding::vector(384)) vector_cosine_ops)
    WHERE live AND vector_dims(embedding) = 384;

-- The words of active memories. A GIN index over a tsvector would be smaller, but under row-level
-- security the engine looks into an index only with operators that are marked as leakproof, and those of full text are not: it would read
-- the whole table instead. Equality of numbers is leakproof, and says beforehand how rare each word is.
CREATE TABLE memory_words (
    org    uuid   NOT NULL,
    word   bigint NOT NULL,
    memory uuid   NOT NULL,
    PRIMARY KEY (org, word, memory)
);

-- Words and vectors follow the row.
CREATE FUNCTION follow_memory() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.status = 'active' THEN
        DELETE FROM memory_words w WHERE w.org = OLD.org AND w.memory = OLD.id
            AND w.word = ANY (OLD.words);
    END IF;
    IF NEW.status = 'active' THEN
        INSERT INTO memory_words (org, word, memory)
        SELECT DISTINCT NEW.org, w, NEW.id FROM unnest(NEW.words) AS w;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status <> NEW.status THEN
        UPDATE memory_vectors v SET live = (NEW.status = 'active') WHERE v.org = NEW.org AND v.memory = NEW.id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER memory_inserted AFTER INSERT ON memories FOR EACH ROW WHEN (NEW.status = 'active') EXECUTE FUNCTION follow_memory();
CREATE TRIGGER memory_changed AFTER UPDATE ON memories FOR EACH ROW
    WHEN (OLD.status <> NEW.status OR OLD.words <> NEW.words) EXECUTE FUNCTION follow_memory();

-- The revision at which a partition last lost a memory: one row to look at before each handoff.
CREATE TABLE forget_fences (
    org      uuid   NOT NULL,
    agent    uuid   NOT NULL,
    user_id  text   COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (org, agent, user_id),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

-- `source` has this relation to `target`. Both are memories of one partition.
CREATE TABLE memory_relations (
    org     uuid   NOT NULL,
    agent   uuid   NOT NULL,
    user_id text   COLLATE "C" NOT NULL,
    source  uuid   NOT NULL,
    target  uuid   NOT NULL,
    kind    text   NOT NULL,
    by      text   NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (org, agent, user_id, source, target, kind),
    CHECK (source <> target),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

CREATE INDEX memory_relations_by_target ON memory_relations (org, agent, user_id, target);

-- Pairs that no rule could judge: somebody has to say what the newer memory is to the older one.
CREATE TABLE escalations (
    id         uuid   PRIMARY KEY,
    org        uuid   NOT NULL,
    agent      uuid   NOT NULL,
    user_id    text   COLLATE "C" NOT NULL,
    newer      uuid   NOT NULL,
    older      uuid   NOT NULL,
    guess      text   NOT NULL,
    status     text   NOT NULL,
    decision   text,
    created_at bigint NOT NULL,
    settled_at bigint,
    UNIQUE (org, agent, user_id, newer, older),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

CREATE INDEX escalations_pending ON escalations (org, agent, user_id, id) WHERE status = 'pending';
CREATE INDEX escalations_by_older ON escalations (org, agent, user_id, older);

-- Keyed writes that are over. `outcomes` names memories and holds no text.
CREATE TABLE ledger (
    org      uuid   NOT NULL,
    agent    uuid   NOT NULL,
    key      text   COLLATE "C" NOT NULL,
    asked    bytea  NOT NULL CHECK (octet_length(asked) = 32),
    outcomes text   NOT NULL,
    at       bigint NOT NULL,
    PRIMARY KEY (org, agent, key),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

CREATE INDEX ledger_by_age ON ledger (org, at);

-- Turns from which nothing could be captured. A letter holds no text.
CREATE TABLE dead_letters (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org      uuid   NOT NULL,
    agent    uuid   NOT NULL,
    user_id  text   COLLATE "C" NOT NULL,
    session  text   NOT NULL,
    turn     bigint NOT NULL,
    reason   text   NOT NULL,
    attempts bigint NOT NULL,
    at       bigint NOT NULL,
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

CREATE INDEX dead_letters_by_partition ON dead_letters (org, agent, user_id, seq);
CREATE INDEX dead_letters_by_age ON dead_letters (org, at);

-- The end of a write: its changes become entries of the feed, in their order, and the memories and fences that they name get their
-- revisions. It answers the newest one. From here to the commit no other write of the store can come this far.
CREATE FUNCTION append_changes(of_org uuid, kinds text[], agents uuid[], users text[], refs uuid[], forgets boolean[], rewrites boolean[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    many   constant bigint := cardinality(kinds);
    -- Entries that are kept, and writes between two removals of old ones. A cache that is further behind starts anew.
    kept   constant bigint := 100000;
    span   constant bigint := 1000;
    newest bigint;
BEGIN
    UPDATE feed SET revision = revision + many RETURNING revision INTO STRICT newest;
    INSERT INTO changes (revision, kind, org, agent, user_id, ref)
    SELECT newest - many + c.place, c.kind, CASE WHEN c.kind <> 'token' THEN of_org END, c.agent, c.user_id, c.ref
    FROM unnest(kinds, agents, users, refs) WITH ORDINALITY AS c (kind, agent, user_id, ref, place);
    UPDATE memories m SET revision = n.revision, text_revision = coalesce(n.text_revision, m.text_revision)
    FROM (SELECT c.agent, c.user_id, c.ref, max(newest - many + c.place) AS revision,
                 max(newest - many + c.place) FILTER (WHERE c.rewritten) AS text_revision
          FROM unnest(kinds, agents, users, refs, rewrites) WITH ORDINALITY AS c (kind, agent, user_id, ref, rewritten, place)
          WHERE c.kind = 'memory' GROUP BY c.agent, c.user_id, c.ref) AS n
    WHERE m.org = of_org AND m.agent = n.agent AND m.user_id = n.user_id AND m.id = n.ref;
    INSERT INTO forget_fences (org, agent, user_id, revision)
    SELECT of_org, c.agent, c.user_id, max(newest - many + c.place)
    FROM unnest(agents, users, forgets) WITH ORDINALITY AS c (agent, user_id, forgotten, place)
    WHERE c.forgotten GROUP BY c.agent, c.user_id
    ON CONFLICT (org, agent, user_id) DO UPDATE SET revision = excluded.revision;
    IF newest / span > (newest - many) / span THEN
        DELETE FROM changes WHERE revision <= newest - newest % span - kept;
    END IF;
    RETURN newest;
END $$;

-- Asked before each handoff: the newest revision at which one of these partitions of an organisation lost a memory.
CREATE FUNCTION forget_fence(of_org uuid, agents uuid[], users text[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN (SELECT coalesce(max(f.revision), 0) FROM unnest(agents, users) AS p (agent, user_id)
            JOIN forget_fences f ON f.org = of_org AND f.agent = p.agent AND f.user_id = p.user_id);
END $$;

-- Uses of memories, added up. Telemetry: its commit does not wait for the disk.
CREATE FUNCTION count_uses(of_org uuid, agents uuid[], users text[], ids uuid[], counts bigint[], lasts bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE), set_config('synchronous_commit', 'off', TRUE);
    PERFORM pg_advisory_xact_lock(lock_of(of_org));
    UPDATE memories m SET retrieval_count = least(m.retrieval_count + u.count, 4294967295), retrieved_at = greatest(m.retrieved_at, u.last)
    FROM unnest(agents, users, ids, counts, lasts) AS u (agent, user_id, id, count, last)
    WHERE m.org = of_org AND m.agent = u.agent AND m.user_id = u.user_id AND m.id = u.id AND m.status <> 'forgotten';
END $$;

-- Active memories without a vector of a model, for the organisations behind one in their order.
CREATE FUNCTION unembedded_partitions(wanted text, behind uuid, most bigint)
RETURNS TABLE (of_org uuid, of_agent uuid, of_user text, lacking bigint) LANGUAGE plpgsql AS $$
DECLARE
    tenant uuid;
BEGIN
    FOR tenant IN SELECT o.id FROM orgs o WHERE o.id > behind ORDER BY o.id LIMIT most LOOP
        PERFORM set_config('ibex.org', tenant::text, TRUE);
        RETURN QUERY SELECT m.org, m.agent, m.user_id, count(*) FROM memories m
            WHERE m.org = tenant AND m.status = 'active' AND m.embedding_model IS DISTINCT FROM wanted
            GROUP BY m.org, m.agent, m.user_id;
    END LOOP;
END $$;
