from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0017_git_id"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(
                condition=models.Q(("kind__in", ("fact", "correction")), ("redacted_at", None)),
                fields=["user", "seq"],
                name="entry_statements",
            ),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(
                models.F("user"),
                models.F("derived_from__0"),
                condition=models.Q(("kind", "correction")),
                name="entry_corrections",
            ),
        ),
    ]
