"""Give a run a column for the constraints that were refused because of gaps in their tests.

Older runs have such gaps only in their verdicts, which are not read again: a gap that was reported
for an older run may block a model's constraint once more.
"""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memory", "0004_user_id_is_no_key")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="test_gaps",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(),
                db_default=models.Value(
                    [],
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), size=None
                    ),
                ),
                default=list,
                help_text="The constraints that the gate refused because of gaps in their tests.",
                size=None,
            ),
        ),
    ]
