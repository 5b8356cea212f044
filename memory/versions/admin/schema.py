"""The names that code about a user can use: the collections of a version, and their fields."""

from typing import Any

from memory.kernel.admin.display import visible
from memory.project.types import format_type
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint

_MAX_CLASSES = 80


def schema_of(head: Checkpoint | None) -> list[dict[str, Any]]:
    """Return each domain's collections and their fields, for display."""
    rendered_classes, left = [], _MAX_CLASSES
    for domain in checkpoints.outline(head).domains.values():
        holders = [
            *((one.name, one.class_name, f"{one.count:,}") for one in domain.collections.values()),
            *((one.name, one.class_name, "one") for one in domain.singletons.values()),
        ][: max(left, 0)]
        left -= len(holders)
        rendered_classes.append(
            {
                "name": visible(domain.name),
                "holders": [
                    {
                        "name": visible(name),
                        "class": visible(class_name),
                        "count": count,
                        "fields": [
                            (visible(field.name), visible(format_type(field.type)))
                            for field in domain.classes[class_name].fields
                        ],
                    }
                    for name, class_name, count in holders
                ],
            }
        )
    return rendered_classes


def names_in(schema: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return (name, kind, detail, domain) for each name of the schema that the editor completes.

    Only collections have a domain, after whose name and a dot they are completed.
    """
    domains = [(one["name"], "namespace", "domain", "") for one in schema]
    collections = [
        (holder["name"], "variable", f"{holder['count']} {holder['class']}", one["name"])
        for one in schema
        for holder in one["holders"]
    ]
    fields = [
        (name, "property", f"{holder['class']}: {type_}", "")
        for one in schema
        for holder in one["holders"]
        for name, type_ in holder["fields"]
    ]
    return [*domains, *collections, *dict.fromkeys([("key", "property", "str", ""), *fields])]
