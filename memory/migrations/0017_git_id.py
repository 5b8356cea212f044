from django.db import migrations, models


class Migration(migrations.Migration):
    """Blobs know by which name git knows them; that of older ones is computed where it is asked."""

    dependencies = [
        ("memory", "0016_redaction"),
    ]

    operations = [
        migrations.AddField(
            model_name="blob",
            name="git_id",
            field=models.CharField(
                blank=True,
                default="",
                help_text="By which git knows the content.",
                max_length=40,
            ),
        ),
    ]
