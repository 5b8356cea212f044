"""Migrations describe the schema alone, without the texts that a model shows to people."""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ProjectState

# Attributes of fields, with their defaults, and options of models. PostgreSQL knows none of them.
_ATTRIBUTES: dict[str, Any] = {
    "_verbose_name": None,
    "help_text": "",
    "choices": None,
    "_validators": [],
}
_OPTIONS = ("verbose_name", "verbose_name_plural")


class SchemaAutodetector(MigrationAutodetector):
    """Compares and writes models without labels, help texts, choices and validators.

    Otherwise a reworded help text would need a migration.
    """

    def __init__(
        self, from_state: ProjectState, to_state: ProjectState, questioner: Any = None
    ) -> None:
        for state in (from_state, to_state):
            for model in state.models.values():
                for field in model.fields.values():
                    _remove_texts(field)
                for option in _OPTIONS:
                    model.options.pop(option, None)
        super().__init__(from_state, to_state, questioner)


def _remove_texts(field: Any) -> None:
    for name, default in _ATTRIBUTES.items():
        setattr(field, name, default)
    if isinstance(field, ArrayField):
        _remove_texts(field.base_field)
