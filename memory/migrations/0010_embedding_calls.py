from django.db import migrations, models

PURPOSES = [
    ("memorize", "memorize: messages to facts"),
    ("structure", "structure: facts to records"),
    ("query", "answer a question"),
    ("check", "try the settings"),
    ("embed", "vectors of texts for the search"),
]


class Migration(migrations.Migration):
    dependencies = [("memory", "0009_track_record_indexes")]

    operations = [
        migrations.AlterField(
            model_name=name,
            name="purpose",
            field=models.CharField(choices=PURPOSES, max_length=16),
        )
        for name in ("llmcall", "llmspending")
    ]
