"""What 0003 adds holds for the rows that were there, too."""

from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations

VALIDATE = "ALTER TABLE memory_alertevent VALIDATE CONSTRAINT memory_alertevent_user_id_fk;"


class Migration(migrations.Migration):
    dependencies = [("memory", "0004_entry_rejected_index")]

    operations = [
        ValidateConstraint("alertevent", name="event_of_alert_or_entries"),
        migrations.RunSQL(VALIDATE, migrations.RunSQL.noop),
    ]
