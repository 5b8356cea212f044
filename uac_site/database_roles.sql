-- Roles and database of a UaC server. Safe to run again; run it with psql as a superuser:
--
--   psql -v owner_password=... -v server_password=... -f uac_site/database_roles.sql
--
--   uac_owner    owns the database and every table; `manage.py migrate` runs as it
--   uac_runtime  the privileges the server needs; migrations grant them table by table
--   uac          the role of the server and its workers: a member of uac_runtime that owns nothing,
--                so that the database itself can refuse to change what is append-only
\set ON_ERROR_STOP on

SELECT 'CREATE ROLE ' || name
FROM unnest(ARRAY['uac_owner', 'uac_runtime', 'uac']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

ALTER ROLE uac_owner LOGIN CREATEDB NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'owner_password';
ALTER ROLE uac_runtime NOLOGIN NOCREATEDB NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS;
ALTER ROLE uac LOGIN NOCREATEDB NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'server_password';
GRANT uac_runtime TO uac;
-- The database's log must not quote users' data, so it omits the failed statements of the server and
-- of migrations, and the rows and keys that they violate a constraint with. The server's own log
-- identifies such failures.
ALTER ROLE uac SET log_min_error_statement = 'panic';
ALTER ROLE uac SET log_error_verbosity = 'terse';
ALTER ROLE uac_owner SET log_min_error_statement = 'panic';
ALTER ROLE uac_owner SET log_error_verbosity = 'terse';

SELECT 'CREATE DATABASE uac OWNER uac_owner TEMPLATE template0 ENCODING ''UTF8'''
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'uac')
\gexec

REVOKE ALL ON DATABASE uac FROM PUBLIC;
GRANT CONNECT ON DATABASE uac TO uac_runtime;

\connect uac
-- The schema belongs to the owner, who may create in it; nobody else may.
ALTER SCHEMA public OWNER TO uac_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO uac_runtime;
