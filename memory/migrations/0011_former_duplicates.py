import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memory", "0010_embedding_calls")]

    operations = [
        migrations.AddField(
            model_name="alert",
            name="was_duplicate_of",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="former_duplicates",
                to="memory.alert",
            ),
        ),
    ]
