"""Tell schemathesis more about the API than its document does: `st run` loads this as its hooks.

It gets formats that JSON Schema does not know, and existing names: UAC_TOUR is a file with the
names that `tests.api_tour` has left. Half of the requests use these names, so that they reach
further than a 404. With UAC_STRANGER all do, and are sent by another workspace: the answer must be
404.
"""

import datetime
import json
import keyword
import os
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.core.parameters import ParameterLocation

from memory.constraints import constraint_library
from memory.project.names import RESERVED_CLASSES, RESERVED_LOWER

THERE: dict[str, dict[str, str]] = json.loads(Path(os.environ["UAC_TOUR"]).read_text())
# True if the requests are sent by another workspace than the one that the names belong to.
STRANGER = "UAC_STRANGER" in os.environ
NOW = datetime.datetime.now(datetime.UTC)


def _moments() -> st.SearchStrategy[str]:
    return st.datetimes(
        min_value=datetime.datetime(2000, 1, 1),  # noqa: DTZ001 - hypothesis wants it so
        max_value=datetime.datetime(2030, 1, 1),  # noqa: DTZ001
        timezones=st.just(datetime.UTC),
    ).map(datetime.datetime.isoformat)


def _free(name: str) -> bool:
    return not (keyword.iskeyword(name) or name in RESERVED_LOWER or name in RESERVED_CLASSES)


FORMATS: dict[str, st.SearchStrategy[str]] = {
    "time-zone": st.sampled_from(sorted(zoneinfo.available_timezones())),
    # An entry, a version, or a moment.
    "moment": st.sampled_from(["1", "v1", NOW.isoformat()]),
    "day-or-moment": _moments() | st.dates().map(datetime.date.isoformat),
    "future-date-time": st.integers(1, 300).map(
        lambda days: (NOW + datetime.timedelta(days=days)).isoformat()
    ),
    # A cursor to the second of all.
    "cursor": st.just("bz0x"),
    "key-cursor": st.just("W10="),
    "feed-number": st.sampled_from(["now", "0"]),
    "lower-name": st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True).filter(_free),
    "class-name": st.from_regex(r"[A-Z][A-Za-z_]{0,20}", fullmatch=True).filter(_free),
    "record-key": st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=200),
    "printable": st.text(max_size=200).filter(str.isprintable),
    "library-name": st.sampled_from(constraint_library.names()),
    "webhook-url": st.integers(1024, 65535).map(lambda port: f"http://127.0.0.1:{port}/hook"),
}

for _name, _strategy in FORMATS.items():
    schemathesis.openapi.format(_name, _strategy)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Use existing names in paths that can name something.

    Also request a feed as a feed, whose parameters differ from a list's: OpenAPI cannot express
    that.
    """
    there = THERE.get(case.operation.path)
    if there and case.meta and not case.meta.is_negative_at(ParameterLocation.PATH):
        # Seeded by what was drawn, so that a run with the same seed is the same.
        drawn = sum(json.dumps(case.path_parameters, sort_keys=True, default=str).encode())
        if STRANGER or drawn % 2:
            case.path_parameters.update(there)
    if case.operation.path.endswith("/alerts") and case.query:
        for name in ("cursor", "page_size") if "after" in case.query else ("wait",):
            case.query.pop(name, None)


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Leave out invalid requests with null, "", [] or {}, which may be valid.

    An optional field may have any of these values, which count as not given. The document says only
    what a client should send.
    """
    is_negative = case.meta is not None and case.meta.generation.mode.is_negative
    return not (is_negative and (_has_empty(case.query) or _has_empty(case.body)))


def _has_empty(value: Any) -> bool:
    if not isinstance(value, Mapping | list):
        return False
    inner = value.values() if isinstance(value, Mapping) else value
    return any(
        one is None or (isinstance(one, str | list | Mapping) and not one) or _has_empty(one)
        for one in inner
    )


if STRANGER:

    @schemathesis.check
    def nothing_is_there_for_strangers(ctx: Any, response: Any, case: Any) -> None:
        """Another workspace's objects must not be found."""
        if case.meta.generation.mode.is_positive:
            assert response.status_code == 404, (
                f"{case.method} {case.formatted_path}: {response.status_code} {response.text[:500]}"
            )
