"""Constraints of workspaces, and their versions, which the database keeps as they were written."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

VERSIONS = """
CREATE FUNCTION memory_constraint_version_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.constraint_id, NEW.number, NEW.source, NEW.source_hash, NEW.tests,
            NEW.created_by, NEW.created_at)
          IS DISTINCT FROM
            (OLD.id, OLD.constraint_id, OLD.number, OLD.source, OLD.source_hash, OLD.tests,
            OLD.created_by, OLD.created_at)
        OR (OLD.state <> 'checking' AND (NEW.verdict IS DISTINCT FROM OLD.verdict
            OR (OLD.state, NEW.state) NOT IN (('refused', 'refused'), ('passed', 'passed'),
                ('passed', 'approved'), ('approved', 'approved'))))
        OR (OLD.state = 'checking' AND NEW.state = 'approved')
    THEN
        RAISE EXCEPTION 'a version of a constraint is immutable: % refused', TG_OP
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER constraint_version_immutable BEFORE UPDATE ON memory_workspaceconstraintversion
    FOR EACH ROW EXECUTE FUNCTION memory_constraint_version_is_immutable();
"""


class Migration(migrations.Migration):
    """The models, a reason for a run, a scope of keys."""

    dependencies = [
        ("memory", "0007_delivery"),
    ]

    operations = [
        migrations.AddField(
            model_name="memoryuser",
            name="constraints_changed_at",
            field=models.DateTimeField(
                editable=False,
                help_text="When constraints of the workspace changed, until they have run again.",
                null=True,
            ),
        ),
        migrations.AddIndex(
            model_name="memoryuser",
            index=models.Index(
                condition=models.Q(
                    ("constraints_changed_at__isnull", False), ("head__isnull", False)
                ),
                fields=["constraints_changed_at"],
                name="user_constraints_changed",
            ),
        ),
        migrations.AlterField(
            model_name="apikey",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(
                    choices=[
                        ("read", "read"),
                        ("write", "write"),
                        ("manage", "manage webhooks and workspace constraints"),
                    ],
                    max_length=16,
                ),
                size=None,
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="trigger",
            field=models.CharField(
                choices=[
                    ("api", "API request"),
                    ("checkpoint", "new checkpoint"),
                    ("daily", "daily"),
                    ("workspace", "workspace constraints changed"),
                    ("command", "command line"),
                    ("model", "language model"),
                ],
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="WorkspaceConstraint",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        help_text="As a Python name, such as drug_allergy.", max_length=100
                    ),
                ),
                ("description", models.CharField(blank=True, default="", max_length=1000)),
                (
                    "percentage",
                    models.PositiveSmallIntegerField(
                        default=0,
                        help_text="Of the users, so many in a hundred have it. More only adds users.",
                    ),
                ),
                ("enabled", models.BooleanField(default=True, help_text="If not, nobody has it.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(editable=False, max_length=200)),
                ("changed_at", models.DateTimeField(editable=False, null=True)),
                (
                    "changed_by",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        help_text="Who last changed it.",
                        max_length=200,
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="constraints",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "ordering": ["workspace", "name"],
                "permissions": [
                    ("approve_workspaceconstraint", "Can approve and enable constraints")
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkspaceConstraintVersion",
            fields=[
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
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("source", models.TextField()),
                ("source_hash", models.CharField(max_length=64)),
                ("tests", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("checking", "being checked"),
                            ("refused", "refused"),
                            ("passed", "passed, not approved"),
                            ("approved", "approved"),
                        ],
                        default="checking",
                        max_length=16,
                    ),
                ),
                (
                    "verdict",
                    models.JSONField(help_text="What was checked, and what was found.", null=True),
                ),
                ("bytecode", models.TextField(blank=True, default="")),
                ("image_digest", models.CharField(blank=True, default="", max_length=100)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(max_length=200)),
                ("judged_at", models.DateTimeField(null=True)),
                ("approved_at", models.DateTimeField(null=True)),
                ("approved_by", models.CharField(blank=True, default="", max_length=200)),
                (
                    "constraint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="memory.workspaceconstraint",
                    ),
                ),
            ],
            options={
                "ordering": ["constraint", "-number"],
            },
        ),
        migrations.AddField(
            model_name="workspaceconstraint",
            name="live",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="The approved version that runs.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="memory.workspaceconstraintversion",
            ),
        ),
        migrations.AddIndex(
            model_name="workspaceconstraintversion",
            index=models.Index(
                condition=models.Q(("state", "checking")),
                fields=["run_after"],
                name="constraint_version_unjudged",
            ),
        ),
        migrations.AddConstraint(
            model_name="workspaceconstraintversion",
            constraint=models.UniqueConstraint(
                fields=("constraint", "number"), name="version_number_of_constraint"
            ),
        ),
        migrations.AddConstraint(
            model_name="workspaceconstraint",
            constraint=models.UniqueConstraint(
                fields=("workspace", "name"), name="constraint_name_in_workspace"
            ),
        ),
        migrations.AddConstraint(
            model_name="workspaceconstraint",
            constraint=models.CheckConstraint(
                condition=models.Q(("percentage__lte", 100)), name="constraint_percentage"
            ),
        ),
        migrations.RunSQL(
            VERSIONS, "DROP FUNCTION memory_constraint_version_is_immutable CASCADE;"
        ),
    ]
