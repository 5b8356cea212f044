"""Uploaded documents."""

import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the table."""

    dependencies = [
        ("memory", "0003_trust"),
    ]

    operations = [
        migrations.CreateModel(
            name="Document",
            fields=[
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("media_type", models.CharField(blank=True, default="", max_length=100)),
                ("size", models.PositiveIntegerField()),
                ("sha256", models.CharField(blank=True, default="", max_length=64)),
                ("file", models.BinaryField(null=True)),
                ("by", models.CharField(max_length=200)),
                ("occurred_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("pages", models.PositiveIntegerField(null=True)),
                ("characters", models.PositiveIntegerField(default=0)),
                ("first_seq", models.BigIntegerField(null=True)),
                ("last_seq", models.BigIntegerField(null=True)),
                ("error", models.CharField(blank=True, default="", max_length=40)),
                ("detail", models.TextField(blank=True, default="")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="documents",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="document_due",
                    ),
                    models.Index(fields=["user", "-created_at", "-id"], name="document_newest"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("sha256", ""), _negated=True),
                        fields=("user", "sha256"),
                        name="document_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("due_at", None), ("finished_at", None), _connector="OR"
                        ),
                        name="document_finished",
                    ),
                ],
            },
        ),
    ]
