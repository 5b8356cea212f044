"""Every model says where a person's content can be, and how it is erased."""

from django.apps import apps
from django.db import models

from memory.kernel.models.privacy import (
    Erase,
    erased_columns,
    kind_of,
    models_about_users,
    owner_paths,
    privacy_of,
)
from memory.kernel.models.users import MemoryUser

ALL: list[type[models.Model]] = list(apps.get_app_config("memory").get_models())


def reaches_a_user(model: type[models.Model], seen: frozenset[type[models.Model]]) -> bool:
    if model is MemoryUser:
        return True
    return any(
        reaches_a_user(field.related_model, seen | {model})
        for field in model._meta.get_fields()
        if isinstance(field, models.ForeignKey | models.OneToOneField)
        and isinstance(field.related_model, type)
        and field.related_model not in seen | {model}
    )


def test_every_model_that_reaches_a_user_has_an_owner_and_is_erased() -> None:
    for model in ALL:
        about_a_user = reaches_a_user(model, frozenset())
        assert bool(owner_paths(model)) is about_a_user, model
        assert privacy_of(model).erase is not None, model
        assert (privacy_of(model).erase is Erase.NOTHING) is not about_a_user, model


def test_every_column_that_can_hold_text_is_declared() -> None:
    for model in ALL:
        for column in model._meta.concrete_fields:
            assert kind_of(column), f"declare {model.__name__}.{column.name} in its Privacy"


def test_every_declared_column_exists_and_is_declared_once() -> None:
    for model in ALL:
        privacy = privacy_of(model)
        names = [
            *(*privacy.content, *privacy.identity, *privacy.on_record),
            *privacy.plain,
        ]
        assert len(names) == len(set(names)), model
        assert set(names) <= {column.name for column in model._meta.concrete_fields}, model


def test_an_undeclared_column_is_content() -> None:
    column = models.TextField()
    column.model = MemoryUser
    column.name = "added_next_year"

    assert kind_of(column) == ""


def test_free_text_and_json_count_as_content_unless_they_cannot_tell() -> None:
    harmless = {("Run", "timings"), ("Forecast", "timings"), ("UserErasure", "counts")}
    # Keyed hashes, which go with the redactions of whoever is erased.
    harmless |= {("Redaction", "keys")}
    # The reason for an erasure stays on record, and must not contain the name.
    harmless |= {("UserErasure", "reason")}
    for model in models_about_users():
        for field in model._meta.concrete_fields:
            if isinstance(field, models.TextField | models.JSONField):
                erased = field.name in erased_columns(model)
                assert erased or (model.__name__, field.name) in harmless, (model, field.name)
