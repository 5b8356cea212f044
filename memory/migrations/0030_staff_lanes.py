"""An index for the staff's list of lanes."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built while the server goes on

    dependencies = [
        ("memory", "0029_api_keys"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="lane",
            index=models.Index(fields=["due_at", "id"], name="lane_longest"),
        ),
    ]
