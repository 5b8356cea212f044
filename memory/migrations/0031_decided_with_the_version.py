"""What is decided by a version has its time. The database is not changed by it."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0030_staff_lanes"),
    ]

    operations = [
        migrations.AlterField(
            model_name="entryoutcome",
            name="decided_at",
            field=models.DateTimeField(
                default=django.utils.timezone.now,
                editable=False,
                help_text="With a version, the time of that; later if it was decided when that was there.",
            ),
        ),
    ]
