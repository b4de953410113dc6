-- Candidates of a search in one partition: the nearest by cosine, and those with the rarest of the asked words. The rows are ranked by
-- the program, so an order among them is not promised.

-- The nearest of all vectors of a partition, compared one by one. The materialised step keeps the planner from taking the vector index,
-- which knows no partitions; memories are looked at in the order of their distance until enough are valid.
CREATE FUNCTION nearest_exact(of_org uuid, of_agent uuid, of_user text, of_model text, asked vector, at bigint, most bigint)
RETURNS SETOF uuid LANGUAGE sql STABLE ROWS 100 AS $$
    WITH distances AS MATERIALIZED (
        SELECT v.memory, v.embedding <=> asked AS distance FROM memory_vectors v
        WHERE v.org = of_org AND v.agent = of_agent AND v.user_id = of_user AND v.live AND v.model = of_model
          AND vector_dims(v.embedding) = vector_dims(asked))
    SELECT d.memory FROM (SELECT memory, distance FROM distances ORDER BY distance) AS d JOIN memories m ON m.id = d.memory
    WHERE m.org = of_org AND m.agent = of_agent AND m.user_id = of_user AND m.status = 'active'
      AND m.valid_from <= at AND (m.valid_until IS NULL OR m.valid_until > at)
    ORDER BY d.distance LIMIT most
$$;

-- The nearest by the vector index of the dimension, which goes on until it has found enough of this partition or gives up.
CREATE FUNCTION nearest_indexed(of_org uuid, of_agent uuid, of_user text, of_model text, asked vector, at bigint, most bigint)
RETURNS SETOF uuid LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    dims constant integer := vector_dims(asked);
    kind constant text := CASE WHEN dims > 2000 THEN 'halfvec' ELSE 'vector' END;
BEGIN
    -- Sorting all of the partition is what this is not for.
    PERFORM set_config('enable_sort', 'off', TRUE);
    RETURN QUERY EXECUTE format(
        'SELECT v.memory FROM memory_vectors v JOIN memories m ON m.id = v.memory
         WHERE v.live AND vector_dims(v.embedding) = %1$s AND v.org = $1 AND v.agent = $2 AND v.user_id = $3 AND v.model = $4
           AND m.org = $1 AND m.agent = $2 AND m.user_id = $3 AND m.status = ''active''
           AND m.valid_from <= $6 AND (m.valid_until IS NULL OR m.valid_until > $6)
         ORDER BY v.embedding::%2$s(%1$s) <=> $5::%2$s(%1$s) LIMIT $7', dims, kind)
    USING of_org, of_agent, of_user, of_model, asked, at, most;
    PERFORM set_config('enable_sort', 'on', TRUE);
END $$;

-- Words that occur in fewer than `common` memories of the partition decide; only when there is none of those, the newest with a common
-- one.
CREATE FUNCTION with_words(of_org uuid, of_agent uuid, of_user text, asked bigint[], at bigint, most bigint, common bigint)
RETURNS SETOF uuid LANGUAGE sql STABLE ROWS 100 AS $$
    WITH counted AS MATERIALIZED (
        SELECT a.word, (SELECT count(*) FROM (SELECT 1 FROM memory_words w WHERE w.org = of_org AND w.word = a.word LIMIT common) AS s) AS held
        FROM (SELECT DISTINCT u.word FROM unnest(asked) AS u (word)) AS a),
    chosen AS MATERIALIZED (
        SELECT c.word, 1 / ln(c.held + 2::float8) AS weight FROM counted c
        WHERE c.held BETWEEN 1 AND common - 1 OR (c.held = common AND NOT EXISTS (SELECT 1 FROM counted o WHERE o.held BETWEEN 1 AND common - 1))),
    hits AS MATERIALIZED (
        SELECT w.memory, sum(c.weight) AS weight FROM chosen c CROSS JOIN LATERAL
            (SELECT i.memory FROM memory_words i WHERE i.org = of_org AND i.word = c.word ORDER BY i.memory DESC LIMIT common) AS w
        GROUP BY w.memory)
    SELECT h.memory FROM (SELECT memory, weight FROM hits ORDER BY weight DESC, memory DESC) AS h JOIN memories m ON m.id = h.memory
    WHERE m.org = of_org AND m.agent = of_agent AND m.user_id = of_user AND m.status = 'active'
      AND m.valid_from <= at AND (m.valid_until IS NULL OR m.valid_until > at)
    ORDER BY h.weight DESC, h.memory DESC LIMIT most
$$;

CREATE FUNCTION partition_size(of_org uuid, of_agent uuid, of_user text, cap bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN (SELECT count(*) FROM (SELECT 1 FROM memories m
        WHERE m.org = of_org AND m.agent = of_agent AND m.user_id = of_user AND m.status = 'active' LIMIT cap) AS s);
END $$;

-- What is known of a partition besides its candidates: its size, counted to `cap`; how many of its memories have each word, counted to 5,000;
-- and the mean cosine of some of its vectors with the asked one.
CREATE FUNCTION background(of_org uuid, of_agent uuid, of_user text, of_model text, asked real[], words bigint[], cap bigint,
                           OUT size bigint, OUT held bigint[], OUT mean_cosine real) LANGUAGE plpgsql AS $$
BEGIN
    size := partition_size(of_org, of_agent, of_user, cap);
    held := ARRAY(SELECT (SELECT count(*) FROM (SELECT 1 FROM memory_words w WHERE w.org = of_org AND w.word = u.word LIMIT 5000) AS s)
                  FROM unnest(words) WITH ORDINALITY AS u (word, place) ORDER BY u.place);
    IF cardinality(asked) > 0 THEN
        mean_cosine := (SELECT avg(1 - (s.embedding <=> asked::vector)) FROM (SELECT v.embedding FROM memory_vectors v
            WHERE v.org = of_org AND v.agent = of_agent AND v.user_id = of_user AND v.live AND v.model = of_model
              AND vector_dims(v.embedding) = cardinality(asked) LIMIT 256) AS s);
    END IF;
END $$;

-- Whether the vector index is worth asking for a partition: it holds the vectors of all tenants, so it comes across one of this partition
-- the more seldom the smaller its share is, and looking at one there costs some ten times as much as comparing it.
CREATE FUNCTION is_indexed_faster(of_org uuid, of_agent uuid, of_user text, most bigint, exact_rows bigint, dims bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    vectors constant real := (SELECT greatest(c.reltuples, 0) FROM pg_class c WHERE c.oid = 'memory_vectors'::regclass);
    few constant bigint := greatest(exact_rows, sqrt(10.0 * most * vectors)::bigint);
BEGIN
    -- Without an index of that dimension there is nothing to ask.
    RETURN EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                   WHERE i.indrelid = 'memory_vectors'::regclass AND i.indisvalid AND c.relname = 'memory_vectors_hnsw_' || dims)
       AND partition_size(of_org, of_agent, of_user, few + 1) > few;
END $$;

CREATE FUNCTION candidates(of_org uuid, of_agent uuid, of_user text, of_model text, asked real[], words bigint[], at bigint, most bigint,
                           by_index boolean, ef_search bigint)
RETURNS SETOF uuid LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    found bigint := 0;
BEGIN
    IF cardinality(words) > 0 THEN
        RETURN QUERY SELECT with_words(of_org, of_agent, of_user, words, at, most, 5000);
    END IF;
    IF cardinality(asked) > 0 AND by_index THEN
        PERFORM set_config('hnsw.iterative_scan', 'strict_order', TRUE), set_config('hnsw.ef_search', ef_search::text, TRUE);
        RETURN QUERY SELECT nearest_indexed(of_org, of_agent, of_user, of_model, asked::vector, at, most);
        GET DIAGNOSTICS found = ROW_COUNT;
    END IF;
    -- The index gives up at some time, and an index of the dimension may be missing.
    IF cardinality(asked) > 0 AND found < most THEN
        RETURN QUERY SELECT nearest_exact(of_org, of_agent, of_user, of_model, asked::vector, at, most);
    END IF;
END $$;
