"""Where an entry comes from: entries appended before, and those of older servers, are the user's."""

from django.db import migrations, models

# As in 0002, but a redaction leaves the class of an entry as it is, too.
LOG = """
CREATE OR REPLACE FUNCTION memory_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND NEW.redacted_at IS NOT NULL AND NEW.redacted_at = coalesce(OLD.redacted_at, NEW.redacted_at)
        AND (NEW.key_hash = OLD.key_hash OR NEW.key_hash IS NULL)
        AND num_nonnulls(NEW.content, NEW.data, NEW.metadata, NEW.session_id, NEW.role,
            NEW.speaker, NEW.agent_id, NEW.source, NEW.idempotency_key, NEW.salt) = 0
        AND (NEW.id, NEW.user_id, NEW.seq, NEW.kind, NEW.occurred_at, NEW.recorded_at,
            NEW.derived_from, NEW.trust, NEW.payload_hash, NEW.hash)
          IS NOT DISTINCT FROM
            (OLD.id, OLD.user_id, OLD.seq, OLD.kind, OLD.occurred_at, OLD.recorded_at,
            OLD.derived_from, OLD.trust, OLD.payload_hash, OLD.hash)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the log is append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
"""


class Migration(migrations.Migration):
    """Adds the column and protects it."""

    dependencies = [("memory", "0002_rules")]

    operations = [
        migrations.AddField(
            model_name="logentry",
            name="trust",
            field=models.CharField(db_default="user", default="user", max_length=8),
        ),
        migrations.RunSQL(LOG),
    ]
