#!/bin/bash
# What the official entrypoint does, as far as docker-compose.yml relies on it.
set -euo pipefail
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=${POSTGRES_PASSWORD:-$(cat "$POSTGRES_PASSWORD_FILE")}
    user=${POSTGRES_USER:-postgres}
    # shellcheck disable=SC2086 # options, separated by spaces
    initdb --username="$user" --pwfile=<(printf '%s\n' "$password") ${POSTGRES_INITDB_ARGS:-} -D "$PGDATA"
    printf "listen_addresses = '*'\nunix_socket_directories = '/var/run/postgresql'\n" >>"$PGDATA/postgresql.conf"
    printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -w -o "-c listen_addresses=''" start
    for file in /docker-entrypoint-initdb.d/*; do
        case $file in
            *.sql) psql -v ON_ERROR_STOP=1 --no-password --no-psqlrc --username "$user" --dbname "${POSTGRES_DB:-postgres}" -f "$file" ;;
            *.sh) bash "$file" ;;
        esac
    done
    pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec "$@"
