-- Runs once, when the container makes its database: roles with the passwords of the secrets.
\set owner_password `cat /run/secrets/owner_password`
\set server_password `cat /run/secrets/server_password`
\i /uac/database_roles.sql
