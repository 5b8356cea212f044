import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0018_entry_statements"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alarm",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Not tried again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(help_text="When workers were last told of it.", null=True),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(default=0, help_text="Tries since the last success."),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("detail", models.TextField(help_text="What is wrong, or was last.")),
                (
                    "holds_since",
                    models.DateTimeField(
                        help_text="Since when it is so; empty when it is not.", null=True
                    ),
                ),
                ("seen_at", models.DateTimeField(help_text="When it was so last.", null=True)),
                (
                    "raised_at",
                    models.DateTimeField(
                        help_text="Empty: it is not, or not for long yet.", null=True
                    ),
                ),
                ("cleared_at", models.DateTimeField(help_text="When it was over.", null=True)),
                (
                    "is_told",
                    models.BooleanField(
                        default=True,
                        help_text="Whether the staff were told of the last change by e-mail.",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Heartbeat",
            fields=[
                ("name", models.CharField(max_length=50, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.AddField(
            model_name="backtest",
            name="dead_since",
            field=models.DateTimeField(
                help_text="When it was given up; empty if it was not, or the staff have seen to it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="dead_since",
            field=models.DateTimeField(
                help_text="When it was given up; empty if it was not, or the staff have seen to it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="forecast",
            name="dead_since",
            field=models.DateTimeField(
                help_text="When it was given up; empty if it was not, or the staff have seen to it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="dead_since",
            field=models.DateTimeField(
                help_text="When it was given up; empty if it was not, or the staff have seen to it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="staffsubscription",
            name="operations",
            field=models.BooleanField(
                default=False,
                help_text="Alarms of the server itself are mailed at once.",
                verbose_name="alarms",
            ),
        ),
        migrations.AddIndex(
            model_name="backtest",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="backtest_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="delivery_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="forecast",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="forecast_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="run_dead",
            ),
        ),
    ]
