"""Validating arguments against a JSON schema, with messages that a language model can act on."""

import functools
from collections.abc import Mapping
from typing import Any

# Maximum number of problems reported; a longer list wouldn't help a language model.
MAX_PROBLEMS = 5
MAX_TOLD = 300


@functools.cache
def _validator_class() -> Any:
    # Import jsonschema here: with all its optional formats installed, the import takes more than a
    # second, which would delay the start of every process.
    from jsonschema import Draft202012Validator, validators

    # In JSON Schema, 1.0 is an integer; in Python and in the database it is not.
    return validators.extend(
        Draft202012Validator,
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, value: type(value) is int
        ),
    )


def _describe_error(error: Any) -> str:
    """Return where the error is and what it is; of alternatives, the one that was meant counts."""
    from jsonschema.exceptions import best_match

    cause = best_match([error])
    return f"{cause.json_path}: {cause.message[:MAX_TOLD]}"


def misfit(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Describe how a tool's arguments violate its schema; return "" if they are valid."""
    try:
        errors = sorted(
            _validator_class()(schema).iter_errors(arguments), key=lambda error: error.json_path
        )
    except RecursionError:
        return "The arguments are nested too deeply."
    if not errors:
        return ""
    problems = [_describe_error(error) for error in errors[:MAX_PROBLEMS]]
    more = len(errors) - len(problems)
    return (
        "The arguments do not match the tool's schema: "
        + "; ".join(problems)
        + (f"; and {more} more." if more else ".")
    )
