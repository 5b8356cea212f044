"""Whether arguments fit their JSON schema, told so that a language model can mend them."""

import functools
from collections.abc import Mapping
from typing import Any

# More is no help to a model.
MAX_PROBLEMS = 5
MAX_TOLD = 300


@functools.cache
def _validator_class() -> Any:
    # Imported where it is needed: with all its formats installed that takes more than a second,
    # which every process would pay at its start.
    from jsonschema import Draft202012Validator, validators

    # To JSON Schema 1.0 is an integer, too; to Python and the database it is none.
    return validators.extend(
        Draft202012Validator,
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, value: type(value) is int
        ),
    )


def misfit(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Say where the arguments of a tool do not fit its schema; an empty text if they do."""
    try:
        errors = sorted(
            _validator_class()(schema).iter_errors(arguments), key=lambda error: error.json_path
        )
    except RecursionError:
        return "The arguments are nested too deeply."
    if not errors:
        return ""
    told = [f"{error.json_path}: {error.message[:MAX_TOLD]}" for error in errors[:MAX_PROBLEMS]]
    more = len(errors) - len(told)
    return (
        "The arguments do not fit the tool's schema: "
        + "; ".join(told)
        + (f"; and {more} more." if more else ".")
    )
