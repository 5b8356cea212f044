"""Rules for migrations that run while older servers still run, and other statements wait.

docs/operations.md § Writing a migration gives the reasons. A migration is judged by its SQL, with
django-migration-linter and with rules of our own where that looks at the first statement alone.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import closing

from django.db import connection
from django.db.migrations import Migration, RunPython
from django.db.migrations.state import ProjectState
from django_migration_linter.sql_analyser.base import Check, CheckMode, CheckType
from django_migration_linter.sql_analyser.postgresql import PostgresqlAnalyser

_TABLE = r'(?:ONLY )?"?(?P<table>\w+)"?'
_CREATED = re.compile(rf"^CREATE TABLE {_TABLE}")
_INDEX = re.compile(rf"^CREATE (UNIQUE )?INDEX (?!CONCURRENTLY).* ON {_TABLE}")
_CONSTRAINED = re.compile(
    rf"^ALTER TABLE {_TABLE} ADD (CONSTRAINT .* (CHECK|FOREIGN KEY|EXCLUDE)\b|COLUMN .* REFERENCES)"
)
_UNIQUE = re.compile(
    rf"^ALTER TABLE {_TABLE} ADD CONSTRAINT .* (UNIQUE|PRIMARY KEY)(?! USING INDEX)"
)
_NOT_NULL = re.compile(
    rf"^ALTER TABLE {_TABLE} (ADD COLUMN (?!.* DEFAULT ).* NOT NULL|ALTER COLUMN .* SET NOT NULL)"
)
# Django sets a default for the existing rows, and removes it for later ones.
_NO_DEFAULT = re.compile(rf"^ALTER TABLE {_TABLE} ALTER COLUMN .* DROP DEFAULT")
_BODY = re.compile(r"(CREATE (?:OR REPLACE )?FUNCTION\b[^$;]*)\$\$.*?\$\$", re.DOTALL)
# PostgreSQL refuses this for a partitioned table.
_LOG_INDEX = re.compile(r'^CREATE (UNIQUE )?INDEX CONCURRENTLY .* ON "?memory_logentry"? ')
_ROWS = re.compile(rf"^(UPDATE|DELETE FROM) {_TABLE}")


def _on_old_tables(*patterns: re.Pattern[str], unless: str = "\0") -> Callable[..., bool]:
    """Return whether a statement does that to a table that the migration does not create."""

    def found(statements: Sequence[str], **options: object) -> bool:
        created = {match["table"] for one in statements if (match := _CREATED.match(one))}
        return any(
            match["table"] not in created
            for one in statements
            for pattern in patterns
            if unless not in one and (match := pattern.match(one))
        )

    return found


def _rule(code: str, found: Callable[..., bool], message: str) -> Check:
    return Check(code, found, message, CheckMode.TRANSACTION, CheckType.ERROR)


class Rules(PostgresqlAnalyser):
    """The linter's own rules (dropped and renamed columns and tables, changed types), and these."""

    # A rule below reports an index in a transaction more clearly.
    migration_checks = [
        *(
            one
            for one in PostgresqlAnalyser.migration_checks
            if one.code != "CREATE_INDEX_EXCLUSIVE"
        ),
        _rule(
            "NOT_NULL",
            _on_old_tables(_NOT_NULL, _NO_DEFAULT),
            "the old release writes no value: give the field a db_default, or let it be NULL",
        ),
        _rule(
            "CREATE_INDEX",
            _on_old_tables(_INDEX),
            "writes wait for the index: use AddIndexConcurrently and atomic = False",
        ),
        _rule(
            "LOG_INDEX",
            lambda statements, **options: any(map(_LOG_INDEX.match, statements)),
            "the log is partitioned: create the index ON ONLY the log, concurrently on each"
            " partition, and attach those",
        ),
        _rule(
            "ADD_UNIQUE",
            _on_old_tables(_UNIQUE),
            "writes wait for its index: create that concurrently, and the constraint USING INDEX",
        ),
        _rule(
            "ADD_CONSTRAINT",
            _on_old_tables(_CONSTRAINED, unless="NOT VALID"),
            "writes wait until all rows are looked at: add it NOT VALID, validate it in a later"
            " migration (AddConstraintNotValid, ValidateConstraint)",
        ),
        _rule(
            "CHANGE_ROWS",
            _on_old_tables(_ROWS),
            "rows are locked until the end: change them in batches, by work of the new release",
        ),
    ]


def violations(migration: Migration, before: ProjectState) -> dict[str, str]:
    """Return a migration's violations of the rules, applied to this state: code → message."""
    with (
        closing(connection.copy()) as other,  # which is in no transaction
        other.schema_editor(collect_sql=True, atomic=migration.atomic) as editor,
    ):
        migration.apply(before.clone(), editor, collect_sql=True)
    # The body of a function runs later.
    done = [_BODY.sub(r"\1 $$", one) for one in editor.collected_sql]
    lines = [line.strip() for one in done for line in one.splitlines()]
    rules = Rules(None)
    rules.analyse(lines)
    found = {issue.code: issue.message for issue in (*rules.errors, *rules.warnings)}
    if any(isinstance(one, RunPython) for one in migration.operations):
        found["RUN_PYTHON"] = "what it does to rows cannot be seen: see CHANGE_ROWS"
    return found
