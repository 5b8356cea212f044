"""Versions of people who are not erased stay, and no entry is redacted before it was recorded."""

from django.db import migrations

# With this trigger a newest version cannot be taken away unnoticed: the numbers of the others would
# show no gap.
VERSIONS = """
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
# Copies that are older than a redaction are found by its date.
REDACTIONS = """
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


class Migration(migrations.Migration):
    dependencies = [("memory", "0033_user_ids_fit_addresses")]

    operations = [
        migrations.RunSQL(VERSIONS, "DROP FUNCTION memory_checkpoint_stays CASCADE;"),
        migrations.RunSQL(REDACTIONS, "DROP FUNCTION memory_redaction_is_dated CASCADE;"),
    ]
