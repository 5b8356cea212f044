"""An index for the front page's chart of alerts."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built while the server goes on

    dependencies = [
        ("memory", "0031_decided_with_the_version"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="alert",
            index=models.Index(
                fields=["opened_at"], include=["severity", "user"], name="alert_opened"
            ),
        ),
    ]
