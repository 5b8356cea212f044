from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("memory", "0011_former_duplicates")]

    operations = [
        AddIndexConcurrently(
            model_name="alert",
            index=models.Index(
                condition=models.Q(was_duplicate_of__isnull=False),
                fields=["was_duplicate_of"],
                name="alert_former_duplicate",
            ),
        ),
    ]
