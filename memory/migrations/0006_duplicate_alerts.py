import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memory", "0005_entry_rejected_valid")]

    operations = [
        migrations.AddField(
            model_name="alert",
            name="duplicate_of",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="duplicates",
                to="memory.alert",
            ),
        ),
    ]
