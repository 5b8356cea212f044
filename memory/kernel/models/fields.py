"""Custom database fields and validators, and a common kind of index."""

import functools
import zoneinfo
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.lookups import In
from psycopg.types.json import Json

from memory.kernel.canonical import exact_json

_LEAST, _MOST = -(2**63), 2**63 - 1


def validate_time_zone(name: str) -> None:
    """Raise ValidationError unless `name` is an IANA time zone such as Europe/Berlin."""
    known = _time_zones().get(name.lower())
    if known != name:
        raise ValidationError(
            "%(name)r is not an IANA time zone; use a name such as %(known)s.",
            params={"name": name, "known": known or "Europe/Berlin"},
        )


def time_zone_named(name: str) -> str:
    """Return the IANA time zone with this name, in any case; raise ValidationError if none has."""
    known = _time_zones().get(name.lower(), name)
    validate_time_zone(known)
    return known


@functools.cache
def _time_zones() -> dict[str, str]:
    """Map the lower-case names of all time zones to the names; finding them opens 600 files."""
    return {name.lower(): name for name in zoneinfo.available_timezones()}


class ExactJSONField(models.JSONField):
    """JSON stored exactly as written (with PostgreSQL's `json` type rather than `jsonb`).

    `jsonb` rewrites numbers (1e16 comes back as an integer, -0.0 as 0) and sorts keys. Data hashed
    into the log must come back exactly as it was written, and people should see fields in the order
    in which the client sent them.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the column's type."""
        return "json"

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        """Wrap the value as `json` so that the driver never converts it to `jsonb`."""
        return None if value is None else Json(value, dumps=exact_json)

    def from_db_value(self, value: Any, expression: object, connection: BaseDatabaseWrapper) -> Any:
        """Return the value as the driver parsed it; Django disables parsing only for `jsonb`."""
        return value


def exactly_if(one: models.Q, other: models.Q, *, name: str) -> models.CheckConstraint:
    """Return a constraint: a row fulfils either both conditions or neither."""
    return models.CheckConstraint(condition=one & other | ~one & ~other, name=name)


def index_if_set(field: str, name: str) -> models.Index:
    """Return an index on the rows in which this field has a value."""
    return models.Index(
        fields=[field], name=name, condition=models.Q(**{f"{field}__isnull": False})
    )


@models.BigIntegerField.register_lookup
class InColumn(In):
    """An `in` lookup for integer columns that ignores values outside the column's range.

    Django itself handles such values for `=` and `<`. With `in`, however, it would pass them (a
    made-up entry number, for example) on to the database.
    """

    def get_prep_lookup(self) -> Any:
        """Drop values outside the column's range."""
        values = super().get_prep_lookup()
        if not self.rhs_is_direct_value():
            return values
        return [one for one in values if not isinstance(one, int) or _LEAST <= one <= _MOST]
