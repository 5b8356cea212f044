"""A warm-up request, run while nobody is waiting so that the next real request is fast.

After a fork, whichever process first writes to a shared memory page has to wait for it to be
copied, and code runs more slowly the first time. So the runner and the child waiting for work go
through a request whose result nobody needs.
"""

from typing import Any

from .child import Limits
from .loader import compile_source, to_bytecode

REQUEST = {
    "id": 0,
    "op": "rehearse",
    "paths": None,
    "now": "2026-01-01T00:00:00+00:00",
    "time_zone": "UTC",
    "limits": dict.fromkeys(Limits._fields, 1_000_000),
}

# The project to rehearse with while no project is loaded, since the next request will bring one.
PROJECT = {
    "domains/rehearsal/schema.py": """\
from dataclasses import dataclass
from datetime import date
from uac import Record

@dataclass(kw_only=True)
class Rehearsal(Record):
    name: str
    on: date | None = None
    number: int = 0
""",
    "domains/rehearsal/state.py": """\
from domains.rehearsal.schema import Rehearsal

rehearsals: list[Rehearsal] = [
    Rehearsal(key=f"r-{n}", name=f"number {n}", number=1000 + n, sources=(n + 1,))
    for n in range(100)
]
""",
    "constraints/rehearsal.py": """\
import datetime
from collections.abc import Iterator
from uac import Alert, warning
from domains.rehearsal.state import rehearsals

def check(today: datetime.date) -> Iterator[Alert]:
    for rehearsal in rehearsals[:10]:
        yield warning(f"{rehearsal.name} {today}", evidence=[rehearsal])
""",
}


def files() -> dict[str, Any]:
    """Return the rehearsal project in the form in which a host sends files."""
    return {
        "sources": {},
        "bytecode": {
            path: to_bytecode(compile_source(path, text)) for path, text in PROJECT.items()
        },
        "removed": [],
        "limits": REQUEST["limits"],
    }
