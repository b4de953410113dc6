-- Every table with content of a tenant shows and takes rows of the transaction's organisation only, also for its owner. The setting is
-- local to the transaction; without one there are no rows. No setting and no role of the program lifts this.
--
-- `orgs`, `feed`, `changes`, `session_runs` and `schema_steps` hold no content of a tenant, and are left out on purpose.

DO $$
DECLARE
    name text;
    own constant text := 'org = nullif(current_setting(''ibex.org'', TRUE), '''')::uuid';
BEGIN
    FOREACH name IN ARRAY ARRAY['agents', 'tokens', 'directives', 'directive_activations', 'memories', 'memory_vectors', 'memory_words',
        'forget_fences', 'memory_relations', 'escalations', 'ledger', 'dead_letters', 'sessions', 'session_lanes', 'session_turns',
        'session_states']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %I USING (%s) WITH CHECK (%s)', name, own, own);
    END LOOP;
END $$;

-- A token is looked up by its identifier before its organisation is known.
CREATE POLICY presented ON tokens FOR SELECT USING (id = nullif(current_setting('ibex.token', TRUE), '')::uuid);
