"""What the database itself enforces: privileges, the append-only log, immutable checkpoints."""

from django.db import migrations

PRIVILEGES = """
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'uac_runtime') THEN
        RAISE EXCEPTION 'The role uac_runtime does not exist.'
            USING HINT = 'Create the roles of uac_site/database_roles.sql first.';
    END IF;
END
$$;
GRANT USAGE ON SCHEMA public TO uac_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO uac_runtime;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO uac_runtime;
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO uac_runtime;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO uac_runtime;
REVOKE DELETE ON memory_logentry FROM uac_runtime;
"""

# The one permitted UPDATE is a redaction: it empties the payload and leaves the row, so that the
# numbering has no gap and the chain of hashes still verifies.
LOG = """
CREATE FUNCTION memory_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND OLD.redacted_at IS NULL AND NEW.redacted_at IS NOT NULL
        AND num_nonnulls(NEW.content, NEW.data, NEW.metadata, NEW.session_id, NEW.role,
            NEW.speaker, NEW.agent_id, NEW.source, NEW.idempotency_key, NEW.salt) = 0
        AND (NEW.id, NEW.user_id, NEW.seq, NEW.kind, NEW.occurred_at, NEW.recorded_at,
            NEW.derived_from, NEW.payload_hash, NEW.hash)
          IS NOT DISTINCT FROM
            (OLD.id, OLD.user_id, OLD.seq, OLD.kind, OLD.occurred_at, OLD.recorded_at,
            OLD.derived_from, OLD.payload_hash, OLD.hash)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the log is append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER log_append_only BEFORE UPDATE OR DELETE ON memory_logentry
    FOR EACH ROW EXECUTE FUNCTION memory_log_is_append_only();
CREATE TRIGGER log_not_truncated BEFORE TRUNCATE ON memory_logentry
    FOR EACH STATEMENT EXECUTE FUNCTION memory_log_is_append_only();

CREATE FUNCTION memory_log_has_no_gaps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong bigint;
BEGIN
    SELECT appended.user_id INTO wrong
    FROM (
        SELECT user_id, min(seq) AS first, max(seq) AS last, count(*) AS number
        FROM new_entries GROUP BY user_id
    ) AS appended
    WHERE appended.last - appended.first + 1 <> appended.number
       OR appended.first <> 1 + coalesce((
            SELECT max(earlier.seq) FROM memory_logentry AS earlier
            WHERE earlier.user_id = appended.user_id AND earlier.seq < appended.first), 0)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the log of user % would have a gap', wrong
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER log_gapless AFTER INSERT ON memory_logentry
    REFERENCING NEW TABLE AS new_entries
    FOR EACH STATEMENT EXECUTE FUNCTION memory_log_has_no_gaps();
"""

CHECKPOINTS = """
CREATE FUNCTION memory_checkpoint_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a checkpoint is immutable: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER checkpoint_immutable BEFORE UPDATE ON memory_checkpoint
    FOR EACH ROW EXECUTE FUNCTION memory_checkpoint_is_immutable();
CREATE TRIGGER blob_immutable BEFORE UPDATE ON memory_blob
    FOR EACH ROW EXECUTE FUNCTION memory_checkpoint_is_immutable();
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0001_initial")]

    operations = [
        migrations.RunSQL(PRIVILEGES, migrations.RunSQL.noop),
        migrations.RunSQL(
            LOG,
            "DROP FUNCTION memory_log_is_append_only CASCADE;"
            "DROP FUNCTION memory_log_has_no_gaps CASCADE;",
        ),
        migrations.RunSQL(CHECKPOINTS, "DROP FUNCTION memory_checkpoint_is_immutable CASCADE;"),
    ]
