-- Identifiers are uuid, hashes bytea, times bigint microseconds since 1970 in UTC. A user is '' for none. Texts that are compared or
-- ordered have the collation "C": every replica and the embedded engine order them alike.
--
-- A text column never holds a zero byte, which this engine refuses: the program writes it as two characters (rows.rs).

-- The directory of tenants. Work over all tenants walks it, so it has no row-level security: it holds no content of theirs.
CREATE TABLE orgs (
    id         uuid   PRIMARY KEY,
    name       text   NOT NULL,
    status     text   NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE agents (
    id         uuid   PRIMARY KEY,
    org        uuid   NOT NULL REFERENCES orgs (id),
    name       text   NOT NULL,
    status     text   NOT NULL,
    capture    text   NOT NULL,
    created_at bigint NOT NULL,
    -- What the other tables point at, so that no row can pair an agent with another tenant.
    UNIQUE (org, id)
);

CREATE TABLE tokens (
    id          uuid   PRIMARY KEY,
    org         uuid   NOT NULL REFERENCES orgs (id),
    agent       uuid,
    user_id     text   COLLATE "C" NOT NULL,
    name        text   NOT NULL,
    permissions bigint NOT NULL,
    digest      bytea  NOT NULL CHECK (octet_length(digest) = 32),
    created_at  bigint NOT NULL,
    expires_at  bigint,
    revoked_at  bigint,
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

CREATE INDEX tokens_by_org ON tokens (org, created_at, id);

CREATE TABLE directives (
    org          uuid   NOT NULL,
    agent        uuid   NOT NULL,
    version      bigint NOT NULL CHECK (version > 0),
    content      text   NOT NULL,
    mode         text   NOT NULL,
    content_hash bytea  NOT NULL CHECK (octet_length(content_hash) = 32),
    created_at   bigint NOT NULL,
    revoked_at   bigint,
    PRIMARY KEY (org, agent, version),
    FOREIGN KEY (org, agent) REFERENCES agents (org, id)
);

-- A stack per agent: the newest row names the active version, the one below it is what a rollback returns to.
CREATE TABLE directive_activations (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org      uuid   NOT NULL,
    agent    uuid   NOT NULL,
    version  bigint NOT NULL,
    FOREIGN KEY (org, agent, version) REFERENCES directives (org, agent, version)
);

CREATE INDEX directive_activations_by_agent ON directive_activations (org, agent, position);

-- The change feed. One row holds the newest revision; a write takes its revisions from it as its last act before the commit and holds
-- the row until then. So revisions become visible in their order, without gaps, and a reader that has seen one has seen all before it.
CREATE TABLE feed (
    one      boolean PRIMARY KEY DEFAULT TRUE CHECK (one),
    revision bigint  NOT NULL
);

INSERT INTO feed (revision) VALUES (0);

-- Identifiers only, of every tenant: whoever follows the feed keeps the caches of all of them. It has no row-level security.
CREATE TABLE changes (
    revision bigint PRIMARY KEY,
    kind     text   NOT NULL CHECK (kind IN ('org', 'agent', 'token', 'directive', 'memory')),
    org      uuid,
    agent    uuid,
    user_id  text   COLLATE "C",
    ref      uuid   NOT NULL
);

-- The advisory lock of a row: the second half of its identifier, which is random (tx.rs has the same).
CREATE FUNCTION lock_of(id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || right(replace(id::text, '-', ''), 16))::bit(64)::bigint
$$;

-- What a credential, its organisation and its agent are looked up with: a setting and a read in one statement.

CREATE FUNCTION token_by_id(wanted uuid) RETURNS SETOF tokens LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.token', wanted::text, TRUE);
    RETURN QUERY SELECT t.* FROM tokens t WHERE t.id = wanted;
END $$;

CREATE FUNCTION agent_by_id(of_org uuid, wanted uuid) RETURNS SETOF agents LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN QUERY SELECT a.* FROM agents a WHERE a.org = of_org AND a.id = wanted;
END $$;

-- The active version of a directive.
CREATE FUNCTION active_directive(of_org uuid, of_agent uuid) RETURNS SETOF directives LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN QUERY SELECT d.* FROM directives d WHERE d.org = of_org AND d.agent = of_agent AND d.version =
        (SELECT a.version FROM directive_activations a WHERE a.org = of_org AND a.agent = of_agent ORDER BY a.position DESC LIMIT 1);
END $$;

CREATE FUNCTION revoked_directives(of_org uuid, of_agent uuid) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ibex.org', of_org::text, TRUE);
    RETURN QUERY SELECT d.version FROM directives d
        WHERE d.org = of_org AND d.agent = of_agent AND d.revoked_at IS NOT NULL ORDER BY d.version;
END $$;
