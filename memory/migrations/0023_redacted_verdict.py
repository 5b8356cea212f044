"""What somebody has said of a return to an earlier version, and what the gate had against a project
without what was redacted, may quote what is redacted later."""

from django.db import migrations

NOW = """
CREATE OR REPLACE FUNCTION memory_redacted_verdict(verdict jsonb) RETURNS jsonb
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
"""
BEFORE = """
CREATE OR REPLACE FUNCTION memory_redacted_verdict(verdict jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE AS $$
    SELECT verdict || jsonb_build_object('alerts', '[]'::jsonb, 'checks', (
        SELECT coalesce(jsonb_agg(one || '{"findings": []}' ORDER BY place), '[]')
        FROM jsonb_array_elements(verdict -> 'checks') WITH ORDINALITY AS checks (one, place)))
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0022_merge")]

    operations = [migrations.RunSQL(NOW, BEFORE)]
