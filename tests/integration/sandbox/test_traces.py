"""Constraints share a process as long as none of them changes what the next one reads."""

import pytest

from tests.integration.sandbox.conftest import NOW
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits

SCHEMA = """\
import enum
from dataclasses import dataclass, field
from uac import Record

class Size(enum.Enum):
    SMALL = 1

@dataclass
class Dose:
    amount: int
    hours: list[int] = field(default_factory=list)

@dataclass(frozen=True)
class Place:
    names: dict[str, str]

@dataclass(kw_only=True)
class Drug(Record):
    limits = {"most": 3}
    name: str
    size: Size | None = None
    tags: list[str] = field(default_factory=list)
    dose: Dose | None = None
    place: Place | None = None

    def rename(self, name: str, seen: list[str] = []) -> int:
        self.name = name
        seen.append(name)
        return len(seen)

    def recall(self, seen: list[str] = []) -> int:
        seen.append("x")
        return len(seen)

    @classmethod
    def raise_limit(cls) -> None:
        cls.most = 9

@dataclass(kw_only=True)
class Flat(Record):
    name: str
"""
STATE = """\
from domains.health.schema import Dose, Drug, Flat, Place, Size
drugs: list[Drug] = [
    Drug(key="d-1", name="a", tags=["x"], dose=Dose(5, [8]), place=Place({"en": "left"})),
    Drug(key="d-2", name="b", size=Size.SMALL),
]
only = Drug(key="d-3", name="only")
flats: list[Flat] = [Flat(key="f-1", name="one"), Flat(key="f-2", name="two")]
"""
HEAD = "import decimal\nfrom uac import info\nfrom domains.health.state import drugs, flats, only\n"
# Reports what another constraint reads, and the process it runs in.
TELLS = (
    HEAD
    + """
import os
def check():
    yield info(repr((drugs, only, flats, drugs[0].limits, getattr(drugs[0], "most", 3),
        drugs[0].recall(), only.rename("only"), decimal.getcontext().prec)), key="state")
    yield info(str(os.getpid()), key="process")
"""
)
PROJECT = {
    "domains/health/schema.py": SCHEMA,
    "domains/health/state.py": STATE,
    "constraints/tells.py": TELLS,
}


def told(sandbox: Sandbox, **constraints: str) -> dict[str, tuple[str, str]]:
    """Return what every reporting constraint says of the state, and the process it ran in."""
    files = {f"constraints/{name}.py": HEAD + text for name, text in constraints.items()}
    sandbox.load({**PROJECT, **files, "constraints/zz_tells.py": TELLS})
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC", limits=Limits(wall_seconds=20))
    found = {}
    for result in ran.results:
        assert result.error is None, result.error
        if result.alerts:
            state, process = (alert.message for alert in result.alerts)
            found[result.path[12:-3]] = (state, process)
    return found


@pytest.mark.parametrize(
    "change",
    [
        "drugs.pop()",
        "drugs.reverse()",
        "drugs[0], drugs[1] = drugs[1], drugs[0]",
        "flats.clear()",
        "flats[0].name = 'changed'",
        "del flats[0].name",
        "flats[1].sources = (7,)",
        "only.rename('changed')",
        "drugs[0].tags.append('y')",
        "drugs[0].dose.amount = 6",
        "drugs[0].dose.hours.append(9)",
        "drugs[0].place.names['en'] = 'right'",
        "drugs[0].raise_limit()",
        "drugs[0].limits['most'] = 4",
        "drugs[0].recall()",
        "decimal.getcontext().prec = 2",
        "decimal.DefaultContext.prec = 2",
    ],
)
def test_changes_of_a_constraint_are_seen_by_no_other(sandbox: Sandbox, change: str) -> None:
    # Given what is told where nobody changes anything
    (expected, _) = told(sandbox)["tells"]
    # When a constraint, before or after another one, changes something
    text = f"def check():\n    {change}\n    return []\n"
    found = told(sandbox, a_changes=text, u_changes=text)
    # Then the others are told what was loaded
    assert {name: state for name, (state, _) in found.items()} == {
        "tells": expected,
        "zz_tells": expected,
    }


def test_constraints_that_only_read_share_a_process(sandbox: Sandbox) -> None:
    reads = (
        HEAD
        + """
import os
def check():
    found = sorted(flats, key=lambda flat: flat.name, reverse=True)
    found.append(found.pop(0))
    tags = {tag: drug for drug in drugs for tag in drug.tags}
    tags["more"] = found
    assert drugs[0].dose.hours.index(8) == 0 and drugs[1].size.name == "SMALL"
    yield info(str(os.getpid()), key="process")
"""
    )
    files = {f"constraints/{name}.py": reads for name in "abcd"}
    sandbox.load({**PROJECT, **files, "constraints/tells.py": reads})
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC")
    assert [result.error for result in ran.results] == [None] * 5
    assert len({alert.message for result in ran.results for alert in result.alerts}) == 1


def test_constraints_with_untraceable_changes_have_separate_processes(sandbox: Sandbox) -> None:
    counter = (
        "import itertools\nfrom domains.health.schema import Flat\ncounter = itertools.count()\n"
    )
    tells = (
        "import os\nfrom uac import info\nfrom domains.health.state import counter\n"
        "def check():\n    yield info(str(next(counter)), key='n')\n"
        "    yield info(str(os.getpid()), key='process')\n"
    )
    sandbox.load(
        {
            "domains/health/schema.py": SCHEMA,
            "domains/health/state.py": counter,
            **{f"constraints/{name}.py": tells for name in "abc"},
        }
    )
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC")
    messages = [[alert.message for alert in result.alerts] for result in ran.results]
    assert [count for count, _ in messages] == ["0"] * 3
    assert len({process for _, process in messages}) == 3


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        ("os._exit(0)", "killed"),
        ("while True: pass", "timeout"),
        ("os.kill(os.getpid(), 9)", "killed"),
        ("os.close(3)", "killed"),
    ],
)
def test_constraint_killing_its_process_harms_no_other(
    sandbox: Sandbox, ends: str, kind: str
) -> None:
    sandbox.load(
        {
            **PROJECT,
            "constraints/a_first.py": TELLS,
            "constraints/m_ends.py": f"import os\ndef check():\n    {ends}\n    return []\n",
            "constraints/zz_last.py": TELLS,
        }
    )
    # Only endless code uses all of it; the others must finish on a busy machine.
    limits = Limits(wall_seconds=1.5 if kind == "timeout" else 20)
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC", limits=limits)
    errors = {result.path[12:-3]: result.error and result.error.type for result in ran.results}
    assert errors == {"a_first": None, "m_ends": kind, "tells": None, "zz_last": None}
    assert all(len(result.alerts) == 2 for result in ran.results if result.error is None)


def test_answers_forged_for_others_are_noticed(sandbox: Sandbox) -> None:
    """They are noticed by their number; then each constraint runs in a process of its own."""
    line = b'{"outcome":"ok","result":{"alerts":[],"seconds":0.0}}\n'
    forges = f"import os\ndef check():\n    os.write(3, {line * 3!r})\n    return []\n"
    sandbox.load({**PROJECT, "constraints/a_forges.py": forges, "constraints/zz.py": TELLS})
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC")
    forged, *others = ran.results
    assert not_none(forged.error).type == "protocol_error"
    assert [(len(other.alerts), other.error) for other in others] == [(2, None)] * 2
