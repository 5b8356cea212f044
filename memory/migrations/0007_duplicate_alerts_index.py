from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("memory", "0006_duplicate_alerts")]

    operations = [
        AddIndexConcurrently(
            model_name="alert",
            index=models.Index(
                condition=models.Q(duplicate_of=None),
                fields=["opened_at"],
                include=("severity", "user"),
                name="alert_listed_opened",
            ),
        ),
        AddIndexConcurrently(
            model_name="alert",
            index=models.Index(
                condition=models.Q(duplicate_of__isnull=False),
                fields=["duplicate_of"],
                name="alert_duplicate",
            ),
        ),
        AddIndexConcurrently(
            model_name="alert",
            index=models.Index(
                condition=models.Q(duplicate_of__isnull=False) & ~models.Q(state="resolved"),
                fields=["duplicate_of"],
                name="alert_live_duplicate",
            ),
        ),
    ]
