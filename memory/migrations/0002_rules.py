"""Have the database itself enforce privileges, the append-only log, and immutable versions.

It also refuses new rows about an erased user, and removes redacted entries from the search index.
"""

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
REVOKE UPDATE, DELETE ON memory_staffaudit FROM uac_runtime;
"""
# Functions about a user, for the triggers below.
USERS = """
CREATE FUNCTION memory_is_remembered(person bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM memory_memoryuser WHERE id = person AND erased_at IS NULL)
$$;

CREATE FUNCTION memory_something_is_redacted(person bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM memory_logentry WHERE user_id = person AND redacted_at IS NOT NULL)
$$;
"""

# The one permitted UPDATE is a redaction: it empties the payload and leaves the row, so that the
# numbering has no gap and the chain of hashes still verifies. The hash of the idempotency key stays
# until the user is erased. Copies older than a redaction are
# found by its date, so the date must not be before the entry was recorded.
LOG = """
CREATE FUNCTION memory_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND NEW.redacted_at IS NOT NULL AND NEW.redacted_at = coalesce(OLD.redacted_at, NEW.redacted_at)
        AND (NEW.key_hash = OLD.key_hash OR NEW.key_hash IS NULL)
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
    appended record;
BEGIN
    FOR appended IN
        SELECT user_id, min(seq) AS first, max(seq) AS last, count(*) AS number
        FROM new_entries GROUP BY user_id
    LOOP
        IF appended.last - appended.first + 1 <> appended.number
            OR (appended.first <> 1 AND NOT EXISTS (
                SELECT FROM memory_logentry
                WHERE user_id = appended.user_id AND seq = appended.first - 1))
        THEN
            RAISE EXCEPTION 'the log of user % would have a gap', appended.user_id
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
CREATE TRIGGER log_gapless AFTER INSERT ON memory_logentry
    REFERENCING NEW TABLE AS new_entries
    FOR EACH STATEMENT EXECUTE FUNCTION memory_log_has_no_gaps();

-- PostgreSQL copies the triggers of rows to the partitions, but not those of statements, which
-- only the tables' owner can execute on a partition.
DO $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN
        SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'memory_logentry'::regclass
    LOOP
        EXECUTE format('CREATE TRIGGER log_not_truncated BEFORE TRUNCATE ON %s
            FOR EACH STATEMENT EXECUTE FUNCTION memory_log_is_append_only()', partition);
        EXECUTE format('CREATE TRIGGER log_gapless AFTER INSERT ON %s
            REFERENCING NEW TABLE AS new_entries
            FOR EACH STATEMENT EXECUTE FUNCTION memory_log_has_no_gaps()', partition);
    END LOOP;
END
$$;

CREATE FUNCTION memory_redaction_is_dated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only: a redaction before the entry was recorded refused'
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER log_redaction_is_dated BEFORE UPDATE ON memory_logentry
    FOR EACH ROW WHEN (NEW.redacted_at < OLD.recorded_at)
    EXECUTE FUNCTION memory_redaction_is_dated();
"""

# Redacted text is removed from the files and versions that are based on it: a file loses its
# content; a version loses the text of edits, findings and constraint descriptions, and the reason
# for a rollback to it. Which version had which file stays recorded, with the files' hashes. This is
# permitted only for users whose log records a redaction. If the same file is written again, it may
# get its content back.
FILES = """
CREATE FUNCTION memory_blob_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.user_id, NEW.hash) IS NOT DISTINCT FROM (OLD.id, OLD.user_id, OLD.hash)
        AND (CASE
            WHEN NEW.content IS NULL THEN memory_something_is_redacted(NEW.user_id)
            WHEN OLD.content IS NULL
            THEN encode(sha256(convert_to(NEW.content, 'UTF8')), 'hex') = OLD.hash
            ELSE false
        END)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a file of a checkpoint is immutable: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER blob_immutable BEFORE UPDATE ON memory_blob
    FOR EACH ROW EXECUTE FUNCTION memory_blob_is_immutable();
"""
# `checkpoint_stays` keeps the newest version from being deleted unnoticed: the numbers of the other
# versions would show no gap.
CHECKPOINTS = """
CREATE FUNCTION memory_redacted_verdict(verdict jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE AS $$
    SELECT verdict
        || jsonb_build_object('alerts', '[]'::jsonb, 'checks', (
            SELECT coalesce(jsonb_agg(one || '{"findings": []}' ORDER BY place), '[]')
            FROM jsonb_array_elements(verdict -> 'checks') WITH ORDINALITY AS checks (one, place)))
        || CASE WHEN verdict ? 'restored'
            THEN jsonb_build_object('restored', verdict -> 'restored' || '{"reason": ""}')
            ELSE '{}' END
        || CASE WHEN verdict ? 'redaction'
            THEN jsonb_build_object('redaction', verdict -> 'redaction' || '{"problem": ""}')
            ELSE '{}' END
$$;

-- Constraints are pairs of a name and what it is for.
CREATE FUNCTION memory_redacted_outline(outline jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT outline || jsonb_build_object('constraints', (
        SELECT coalesce(jsonb_agg(one -> 0 ORDER BY place), '[]')
        FROM jsonb_array_elements(outline -> 'constraints') WITH ORDINALITY AS pairs (one, place)))
$$;

CREATE FUNCTION memory_redacted_edit(edit json) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'op', edit -> 'op',
        'name', CASE WHEN edit ->> 'op' IN ('write_constraint', 'delete_constraint')
            THEN edit -> 'name' END,
        'sources', edit -> 'sources', 'redacted', true))
$$;

CREATE FUNCTION memory_checkpoint_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.user_id, NEW.version, NEW.parent_id, NEW.tree, NEW.seen_seq, NEW.origin,
            NEW.created_at)
          IS NOT DISTINCT FROM
            (OLD.id, OLD.user_id, OLD.version, OLD.parent_id, OLD.tree, OLD.seen_seq, OLD.origin,
            OLD.created_at)
        AND memory_something_is_redacted(NEW.user_id)
        AND NEW.verdict IN (OLD.verdict, memory_redacted_verdict(OLD.verdict))
        AND memory_redacted_outline(NEW.outline) = memory_redacted_outline(OLD.outline)
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(NEW.outline -> 'constraints')
                WITH ORDINALITY AS now (pair, place)
            JOIN jsonb_array_elements(OLD.outline -> 'constraints')
                WITH ORDINALITY AS before (pair, place) USING (place)
            WHERE now.pair NOT IN (before.pair, jsonb_set(before.pair, '{1}', '""')))
        AND json_array_length(NEW.edits) = json_array_length(OLD.edits)
        AND NOT EXISTS (
            SELECT FROM json_array_elements(NEW.edits) WITH ORDINALITY AS now (edit, place)
            JOIN json_array_elements(OLD.edits) WITH ORDINALITY AS before (edit, place)
                USING (place)
            WHERE CASE WHEN now.edit::text = before.edit::text THEN false
                ELSE now.edit::jsonb <> memory_redacted_edit(before.edit) END)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a checkpoint is immutable: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER checkpoint_immutable BEFORE UPDATE ON memory_checkpoint
    FOR EACH ROW EXECUTE FUNCTION memory_checkpoint_is_immutable();

CREATE FUNCTION memory_checkpoint_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF memory_is_remembered(OLD.user_id) THEN
        RAISE EXCEPTION 'a checkpoint is immutable: DELETE refused'
            USING ERRCODE = 'restrict_violation', HINT = 'Erase the user instead.';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER checkpoint_stays BEFORE DELETE ON memory_checkpoint
    FOR EACH ROW EXECUTE FUNCTION memory_checkpoint_stays();
"""
CONSTRAINT_VERSIONS = """
CREATE FUNCTION memory_constraint_version_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.constraint_id, NEW.number, NEW.source, NEW.source_hash, NEW.tests,
            NEW.created_by, NEW.created_at)
          IS DISTINCT FROM
            (OLD.id, OLD.constraint_id, OLD.number, OLD.source, OLD.source_hash, OLD.tests,
            OLD.created_by, OLD.created_at)
        OR (OLD.state <> 'checking' AND (NEW.verdict IS DISTINCT FROM OLD.verdict
            OR (OLD.state, NEW.state) NOT IN (('refused', 'refused'), ('passed', 'passed'),
                ('passed', 'approved'), ('approved', 'approved'))))
        OR (OLD.state = 'checking' AND NEW.state = 'approved')
    THEN
        RAISE EXCEPTION 'a version of a constraint is immutable: % refused', TG_OP
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER constraint_version_immutable BEFORE UPDATE ON memory_workspaceconstraintversion
    FOR EACH ROW EXECUTE FUNCTION memory_constraint_version_is_immutable();
"""

# The triggers that call this follow from the models: see `memory.privacy.erasure_registry`.
ERASED = """
CREATE FUNCTION memory_user_is_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM memory_memoryuser AS person WHERE person.erased_at IS NOT NULL
            AND person.id IN (SELECT user_id FROM new_rows))
    THEN
        RAISE EXCEPTION 'this user was erased' USING ERRCODE = 'UE001';
    END IF;
    RETURN NULL;
END
$$;
"""

# A redacted entry leaves the index together with its content, whoever redacts it. Until a worker
# has rebuilt the segment, searches read the entries that it covered from the log. A worker that may
# have read the entry already loses its lease. The log of an erased user is not indexed again.
SEARCH = """
CREATE FUNCTION memory_search_forgets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO memory_searchindex
        (user_id, due_at, run_after, lease_owner, token, attempts, last_error)
    VALUES (NEW.user_id, now(), now(), '', 1, 0, '')
    ON CONFLICT (user_id) DO UPDATE SET
        due_at = now(), run_after = now(), hinted_at = NULL, attempts = 0,
        token = memory_searchindex.token + 1, lease_owner = '', lease_expires_at = NULL;
    DELETE FROM memory_searchblock USING memory_searchsegment AS segment
    WHERE segment_id = segment.id AND segment.user_id = NEW.user_id
        AND NEW.seq BETWEEN segment.first_seq AND segment.last_seq;
    DELETE FROM memory_searchsegment AS segment
    WHERE segment.user_id = NEW.user_id
        AND NEW.seq BETWEEN segment.first_seq AND segment.last_seq;
    RETURN NULL;
END
$$;
CREATE TRIGGER search_forgets AFTER UPDATE ON memory_logentry
    FOR EACH ROW WHEN (memory_is_remembered(NEW.user_id)) EXECUTE FUNCTION memory_search_forgets();
-- Blocks are compressed already.
ALTER TABLE memory_searchblock ALTER COLUMN data SET STORAGE EXTERNAL;
"""

# Like the users' log: nobody can change what was recorded, not even the owner of the tables.
AUDIT = """
CREATE FUNCTION memory_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON memory_staffaudit
    FOR EACH ROW EXECUTE FUNCTION memory_audit_is_append_only();
CREATE TRIGGER audit_not_truncated BEFORE TRUNCATE ON memory_staffaudit
    FOR EACH STATEMENT EXECUTE FUNCTION memory_audit_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0001_tables")]

    operations = [
        migrations.RunSQL(sql)
        for sql in (
            PRIVILEGES,
            USERS,
            LOG,
            FILES,
            CHECKPOINTS,
            CONSTRAINT_VERSIONS,
            ERASED,
            SEARCH,
            AUDIT,
        )
    ]
