"""Every migration can run beside servers of the previous release, and blocks nobody."""

import pytest
from django.apps import apps
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from memory.kernel.database.schema_changes import SchemaAutodetector
from tests.migration_rules import violations

pytestmark = pytest.mark.django_db

# By migration and rule, the reason for an exception. "It is one of two steps" is a reason, with the
# name of the release that has the other.
ALLOWED: dict[str, dict[str, str]] = {
    "0001_tables": {
        "DROP_TABLE": "It replaces the plain log, which it has just created, by a partitioned one.",
        "RENAME_TABLE": "The same.",
    }
}


def test_every_migration_keeps_the_rules() -> None:
    loader = MigrationLoader(connection)
    [last] = loader.graph.leaf_nodes("memory")

    found = {}
    state = ProjectState()
    for app, name in loader.graph.forwards_plan(last):
        migration = loader.get_migration(app, name)
        if app == "memory" and (problems := violations(migration, state)):
            found[name] = problems
        state = migration.mutate_state(state, preserve=False)

    allowed = {name: set(rules) for name, rules in ALLOWED.items()}
    surplus = {
        name: told
        for name, problems in found.items()
        if (told := {code: problems[code] for code in problems.keys() - allowed.get(name, set())})
    }
    assert surplus == {}, "see docs/operations.md, Writing a migration"
    # There is no unused exception.
    assert {name: set(problems) for name, problems in found.items()} == allowed


LONG = models.Index(fields=["metadata"], name="user_metadata")
CHECK = models.CheckConstraint(condition=models.Q(last_seq__gte=0), name="user_seq_counts")
UNIQUE = models.UniqueConstraint(fields=["last_seq"], name="user_seq_once")

BAD: list[tuple[str, Operation]] = [
    ("DROP_COLUMN", migrations.RemoveField("memoryuser", "metadata")),
    ("RENAME_COLUMN", migrations.RenameField("memoryuser", "metadata", "about")),
    ("DROP_TABLE", migrations.DeleteModel("heartbeat")),
    ("RENAME_TABLE", migrations.RenameModel("heartbeat", "pulse")),
    ("ALTER_COLUMN", migrations.AlterField("memoryuser", "time_zone", models.IntegerField())),
    ("NOT_NULL", migrations.AddField("memoryuser", "nick", models.TextField(default=""))),
    ("NOT_NULL", migrations.AlterField("memoryuser", "erased_at", models.DateTimeField())),
    ("CREATE_INDEX", migrations.AddIndex("memoryuser", LONG)),
    (
        "LOG_INDEX",
        AddIndexConcurrently("logentry", models.Index(fields=["metadata"], name="entry_metadata")),
    ),
    ("ADD_UNIQUE", migrations.AddConstraint("memoryuser", UNIQUE)),
    ("ADD_CONSTRAINT", migrations.AddConstraint("memoryuser", CHECK)),
    (
        "ADD_CONSTRAINT",
        migrations.AddField(
            "memoryuser", "run", models.ForeignKey("memory.run", models.CASCADE, null=True)
        ),
    ),
    ("CHANGE_ROWS", migrations.RunSQL("UPDATE memory_memoryuser SET time_zone = 'UTC'")),
    (
        "CHANGE_ROWS",
        migrations.RunSQL(
            "CREATE FUNCTION harmless() RETURNS void LANGUAGE sql AS $$ SELECT 1 $$;\n"
            "UPDATE memory_memoryuser SET time_zone = 'UTC'"
        ),
    ),
    ("RUN_PYTHON", migrations.RunPython(lambda apps, editor: None)),
]
GOOD: list[Operation] = [
    migrations.RunSQL(
        "CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$\nBEGIN\n"
        "    UPDATE memory_memoryuser SET time_zone = 'UTC';\n    RETURN NULL;\nEND\n$$;"
    ),
    migrations.AddField("memoryuser", "nick", models.TextField(null=True)),
    migrations.AddField("memoryuser", "nick", models.TextField(db_default="")),
    AddIndexConcurrently("memoryuser", LONG),
    AddConstraintNotValid("memoryuser", CHECK),
    migrations.CreateModel(
        "thing",
        [
            ("id", models.BigAutoField(primary_key=True)),
            ("user", models.ForeignKey("memory.memoryuser", models.CASCADE)),
            ("name", models.TextField(unique=True)),
        ],
        options={"indexes": [models.Index(fields=["user", "name"], name="thing_by_name")]},
    ),
]


def judged(*operations: Operation, atomic: bool = True) -> dict[str, str]:
    """Return the violations of a migration with these operations on the newest tables."""
    kind = type("Next", (migrations.Migration,), {"operations": operations, "atomic": atomic})
    loader = MigrationLoader(connection)
    return violations(
        kind("9999_next", "memory"), loader.project_state(loader.graph.leaf_nodes("memory"))
    )


@pytest.mark.parametrize(
    ("code", "operation"), BAD, ids=[f"{c} {n}" for n, (c, _) in enumerate(BAD)]
)
def test_unsafe_migration_operation_is_found(code: str, operation: Operation) -> None:
    assert code in judged(operation, atomic=not isinstance(operation, AddIndexConcurrently))


@pytest.mark.parametrize("operation", GOOD, ids=[str(number) for number, _ in enumerate(GOOD)])
def test_safe_migration_operation_passes(operation: Operation) -> None:
    assert judged(operation, atomic=not isinstance(operation, AddIndexConcurrently)) == {}


def test_the_migrations_make_the_models() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_texts_of_models_need_no_migration() -> None:
    old, new = ProjectState.from_apps(apps), ProjectState.from_apps(apps)
    field = new.models["memory", "logentry"].fields["kind"]
    field.help_text, field.choices = "What it says.", [("note", "note")]
    new.models["memory", "logentry"].options["verbose_name"] = "line"
    graph = MigrationLoader(connection).graph

    assert SchemaAutodetector(old, new).changes(graph) == {}

    changed = ProjectState.from_apps(apps)
    changed.models["memory", "logentry"].fields["kind"].null = True
    [[migration]] = SchemaAutodetector(new, changed).changes(graph).values()
    assert [type(operation) for operation in migration.operations] == [migrations.AlterField]
