"""An erasure and a redaction find the events of rejected entries by their user."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("memory", "0003_entry_rejected")]

    operations = [
        AddIndexConcurrently(
            "alertevent",
            models.Index(
                condition=models.Q(user__isnull=False),
                fields=["user", "seq"],
                name="event_of_user",
            ),
        ),
    ]
