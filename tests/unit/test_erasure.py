"""The erasure registry knows every place where a person's content can be."""

from django.apps import apps
from django.db import models

from memory.kernel.models.users import MemoryUser
from memory.privacy.erasure_registry import REGISTRY


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


def test_every_model_that_reaches_a_user_is_registered() -> None:
    reaching = {
        model
        for model in apps.get_app_config("memory").get_models()
        if reaches_a_user(model, frozenset())
    }

    assert reaching == set(REGISTRY)


def test_every_column_is_content_or_kept() -> None:
    for model, erasure in REGISTRY.items():
        columns = sorted(field.name for field in model._meta.concrete_fields)
        assert sorted((*erasure.content, *erasure.kept)) == columns, model.__name__


def test_free_text_and_json_count_as_content_unless_they_cannot_tell() -> None:
    harmless = {("Run", "timings"), ("Forecast", "timings"), ("UserErasure", "counts")}
    # The reason for an erasure stays on record, and must not contain the name.
    harmless |= {("UserErasure", "reason")}
    for model, erasure in REGISTRY.items():
        for field in model._meta.concrete_fields:
            if isinstance(field, models.TextField | models.JSONField):
                told = field.name in erasure.content
                assert told or (model.__name__, field.name) in harmless, (model, field.name)
