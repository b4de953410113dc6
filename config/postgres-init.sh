# For the first start of the PostgreSQL of compose.yaml. The database belongs to a role that row-level security binds; the one thing that takes
# a superuser, the extension, is done for it. After that the superuser has no password: it can come in by the container's own socket only.
set -eu
psql --quiet --set ON_ERROR_STOP=1 --set password="$POSTGRES_PASSWORD" --username postgres --dbname postgres <<'SQL'
CREATE ROLE ibex LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE ibex OWNER ibex;
ALTER ROLE postgres PASSWORD NULL;
\connect ibex
CREATE EXTENSION vector;
SQL
