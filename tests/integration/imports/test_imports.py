"""Foreign projects: their data becomes records, with equal values, whatever their layout."""

import dataclasses
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.redactions import Redaction
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run
from tests.integration.commits.conftest import Records, Work
from tests.integration.imports.conftest import Import, report
from tests.integration.redaction.conftest import MARKER, found
from workers.findings import Verdict
from workers.gate import checks
from workers.sandbox import limits
from workers.sandbox.limits import FOREIGN_LIMITS

pytestmark = pytest.mark.django_db

MODULE = '''
"""What is known of a family."""
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Optional


class Kind(Enum):
    BUSINESS = "business"
    FAMILY = "family"


@dataclass
class Address:
    city: str
    tags: list[str] = field(default_factory=list)


@dataclass
class Person:
    name: str
    born: Optional[date] = None
    address: Address | None = None
    friends: list["Person"] = field(default_factory=list)


@dataclass
class Trip:
    to: str
    on: date
    kind: Kind
    cost: Decimal
    traveller: Person
    stops: list[str] = field(default_factory=list)
    extra: dict = field(default_factory=dict)


ada = Person("Ada", date(1815, 12, 10), Address("London", ["b", "a"]))
bob = Person("Bob", friends=[ada])
ada.friends.append(bob)
people = [ada, bob]
trips = [
    Trip("Rome", date(2026, 5, 1), Kind.FAMILY, Decimal("10.50"), ada, ["Milan"], {"seat": 4})
]
first = trips[0]
notes = ["one", "two"]
'''


def test_a_module_becomes_collections_references_and_parts(
    import_files: Import, fields_of: Records, user: MemoryUser
) -> None:
    # When a free-form module is imported,
    import_files(MODULE)
    # then its lists are collections, and the names of its objects their keys;
    people = fields_of("memory.people")
    assert list(people) == ["ada", "bob"]
    # nested objects are parts of the record,
    address = {"$object": "Address", "fields": {"city": "London", "tags": ["b", "a"]}}
    assert people["ada"]["address"] == address
    # objects that are records of their own are referred to, in circles too,
    assert people["ada"]["friends"] == [{"$ref": "Person", "key": "bob"}]
    assert people["bob"]["friends"] == [{"$ref": "Person", "key": "ada"}]
    # enums, decimals and dates stay what they are, and dictionaries become objects,
    (trip,) = fields_of("memory.trips").values()
    assert trip["kind"] == {"$enum": "Kind.FAMILY", "value": "family"}
    assert trip["cost"] == {"$decimal": "10.50"}
    assert trip["on"] == {"$date": "2026-05-01"}
    assert trip["stops"] == ["Milan"]
    assert trip["extra"] == {"$object": "TripExtra", "fields": {"seat": 4}}
    # and what is no record is kept by its name.
    (rest,) = fields_of("memory.variables").values()
    assert rest["notes"] == ["one", "two"]


def test_records_cite_the_entry_of_the_import(import_files: Import, user: MemoryUser) -> None:
    run = import_files(MODULE)
    entry = LogEntry.objects.get(user=user)
    assert "memory.py" in str(entry.content)
    assert EntryOutcome.objects.get(user=user, seq=entry.seq).outcome == Outcome.COVERED
    head = Checkpoint.objects.get(user=user)
    assert (head.origin, head.version, head.seen_seq) == (Origin.IMPORTED, 1, entry.seq)
    assert run.output is not None
    assert run.output["version"] == 1
    assert list(problems(user)) == []


HEAD = "from dataclasses import dataclass\n\n@dataclass\nclass A:\n    n: int\n\n"


PAPER = {
    "manifest.py": 'DOMAINS = ["identity", "travel"]\n',
    "domains/__init__.py": "",
    "domains/identity/schema.py": """
from dataclasses import dataclass
from datetime import date

@dataclass
class PassportInfo:
    number: str
    expires: date
""",
    "domains/identity/state.py": """
from datetime import date
from .schema import PassportInfo

passport = PassportInfo("X1", date(2026, 2, 1))
""",
    "domains/travel/schema.py": """
from dataclasses import dataclass
from datetime import date

@dataclass
class Trip:
    to: str
    starts_on: date
""",
    "domains/travel/state.py": """
from datetime import date
from schema import Trip

trips = [Trip("Tokyo", date(2026, 3, 1)), Trip("Oslo", date(2026, 1, 20))]
""",
    "constraints/passport.py": '''
import importlib.util
import sys
from pathlib import Path


def _load(root, name):
    path = Path(root) / "domains" / name / "state.py"
    sys.path.insert(0, str(path.parent))
    sys.modules.pop("schema", None)
    spec = importlib.util.spec_from_file_location(f"domains.{name}.state", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def check(project_path: str) -> list[dict]:
    """Passports must outlive the trips."""
    passport = _load(project_path, "identity").passport
    return [
        {"severity": "high", "type": f"passport-{trip.to}", "message": trip.to}
        for trip in _load(project_path, "travel").trips
        if trip.starts_on > passport.expires
    ]
''',
}


def test_domains_are_imported_without_constraints(import_files: Import, fields_of: Records) -> None:
    # When a project with a manifest, domains and constraints in another style is imported,
    run = import_files(PAPER)
    # then each domain is one of ours, and the report says that the constraint is left out.
    assert list(fields_of("identity.passport")) == ["passport"]
    assert [trip["to"] for trip in fields_of("travel.trips").values()] == ["Tokyo", "Oslo"]
    (note,) = [note for note in report(run)["notes"] if note["kind"] == "left_out"]
    assert note["place"] == "constraints/passport.py"
    assert "run it against the exported project" in note["message"]


def test_repairs_of_a_module_are_named(import_files: Import, fields_of: Records) -> None:
    run = import_files(
        "```python\n@dataclass\nclass Trip:\n    to: str = ''\n    on: date\n\n"
        "trips = [Trip(to='Rome', on=date(2026, 05, 09))]\n```\n"
    )
    (repaired,) = report(run)["repairs"]
    assert set(repaired["repairs"]) == {
        "surroundings",
        "leading_zeros",
        "keyword_only",
        "missing_imports",
    }
    (trip,) = fields_of("memory.trips").values()
    assert trip == {"to": "Rome", "on": {"$date": "2026-05-09"}}


def test_texts_that_look_like_dates_stay_texts(import_files: Import, fields_of: Records) -> None:
    import_files(
        "from dataclasses import dataclass\nfrom datetime import date\n\n@dataclass\nclass E:\n"
        "    on: object\n\nevents = [E('2026-01-02'), E(date(2026, 1, 2)), E(3), E(3.0), E(True)]\n"
    )
    values = [event["on"] for event in fields_of("memory.events").values()]
    assert values == ["2026-01-02", {"$date": "2026-01-02"}, 3, 3.0, True]
    assert [type(value) for value in values[2:]] == [int, float, bool]


def test_reserved_names_are_renamed_with_a_note(import_files: Import, fields_of: Records) -> None:
    run = import_files(
        "from dataclasses import dataclass\n\n@dataclass\nclass list:\n    key: str\n    n: int\n\n"
        "@dataclass\nclass Record:\n    sources: str\n\n"
        "set = [list('a', 1)]\nITEMS = [Record('x')]\n"
    )
    assert list(fields_of("memory.set_").values()) == [{"key_": "a", "n": 1}]
    assert list(fields_of("memory.items").values()) == [{"sources_": "x"}]
    renamed = {n["place"]: n["message"] for n in report(run)["notes"] if n["kind"] == "renamed"}
    assert renamed["Record"] == "is the class memory.Record_"
    assert renamed["list.key"] == "is key_"


def test_the_clock_of_foreign_code_stands_at_the_run(
    user: MemoryUser, import_files: Import, fields_of: Records
) -> None:
    run = import_files(
        "import time, uuid\nfrom dataclasses import dataclass\n"
        "from datetime import date, datetime\n\n"
        "@dataclass\nclass N:\n    day: date\n    at: datetime\n    id: str\n\n"
        "n = N(date.today(), datetime.now(), str(uuid.uuid4()))\n"
    )
    (n,) = fields_of("memory.n").values()
    day = run.instant.astimezone(ZoneInfo(user.time_zone)).date()
    assert n["day"]["$date"] == day.isoformat()


def test_own_project_keeps_keys_and_constraints(import_files: Import, fields_of: Records) -> None:
    import_files(
        {
            "domains/travel/schema.py": "import datetime\nfrom dataclasses import dataclass\n"
            "from uac import PartialDate, Record, Ref\n\n"
            "@dataclass(kw_only=True)\nclass Visa(Record):\n    since: PartialDate\n\n"
            "@dataclass(kw_only=True)\nclass Trip(Record):\n    to: str\n    visa: Ref[Visa]\n",
            "domains/travel/state.py": "from uac import PartialDate, Ref\n"
            "from domains.travel.schema import Trip, Visa\n\n"
            'visas: list[Visa] = [Visa(key="v", since=PartialDate("2021-11"), sources=(7,))]\n'
            'rome = Ref[Visa]("v")\n'
            'trips: list[Trip] = [Trip(key="rome", to="Rome", visa=rome, sources=(9,))]\n'
            "del rome\n",
            "constraints/far.py": "import datetime\nfrom collections.abc import Iterator\n"
            "from uac import Alert, info\nfrom domains.travel.state import trips\n\n\n"
            "def check(today: datetime.date) -> Iterator[Alert]:\n    for trip in trips:\n"
            '        if trip.to == "Sydney":\n            yield info("far", evidence=[trip])\n',
            "tests/test_far.py": "import datetime\nfrom uac import PartialDate, Ref\n"
            "from uac.testing import run_check\n"
            "from constraints import far\nfrom domains.travel.schema import Trip, Visa\n\n\n"
            "def test_speaks() -> None:\n"
            '    trips = [Trip(key="a", to="Sydney", visa=Ref[Visa]("v"))]\n'
            "    found = run_check(far, today=datetime.date(2026, 1, 1), trips=trips)\n"
            "    assert len(found) == 1\n\n\n"
            "def test_is_silent() -> None:\n"
            '    trips = [Trip(key="a", to="Bonn", visa=Ref[Visa]("v"))]\n'
            "    assert run_check(far, today=datetime.date(2026, 1, 1), trips=trips) == []\n",
        }
    )
    assert list(fields_of("travel.trips")) == ["rome"]
    assert fields_of("travel.visas")["v"]["since"] == {"$partial_date": "2021-11"}
    assert fields_of("travel.trips")["rome"]["visa"] == {"$ref": "Visa", "key": "v"}


def finding(run: Run) -> dict[str, Any]:
    assert run.output is not None
    return dict(run.output["verdict"]["checks"][-1]["findings"][0])


# A module, the code of its problem, and a part of the message.
REFUSED = {
    "prose": ("I am sorry, I cannot do that", "syntax", "SyntaxError"),
    "cut off": (f"{HEAD}a = [A(1), A(2", "syntax", "never closed"),
    "endless loop": (f"{HEAD}while True:\n    pass", "timeout", "longer than 0.5 s"),
    "output": (f"{HEAD}while True:\n    print('x' * 10**6)", "output_limit", "printed more"),
    "memory": (f"{HEAD}a = 'x' * 10**10", "out_of_memory", "memory"),
    "too many": (f"{HEAD}a = [A(n) for n in range(10**6)]", "result_limit", "values"),
    "files": (f"{HEAD}a = open('/etc/passwd').read()", "execution", "FileNotFoundError"),
    "network": (
        f"{HEAD}import urllib.request\nurllib.request.urlopen('http://127.0.0.1')",
        "execution",
        "Error",
    ),
    "none": ("import math\n\ndef f(): ...\n", "no_objects", "no typed objects"),
    "two of one key": (
        "from dataclasses import dataclass\nfrom uac import Record\n\n"
        "@dataclass(kw_only=True)\nclass A(Record):\n    n: int\n\n"
        "a = [A(key='x', n=1), A(key='x', n=2)]\n",
        "key_exists",
        "2 records with the key 'x'",
    ),
    "date": ("from datetime import date\nd = date(2026, 2, 30)", "execution", "out of range"),
    "exit": (f"{HEAD}import sys\nsys.exit()", "killed", "sys.exit"),
    "null": (f"{HEAD}a = A('\\0')", "execution", "null character"),
    "raises": ("raise ValueError('no')", "execution", "ValueError: no"),
    "import": ("import no_such_module", "execution", "no_such_module"),
}


@pytest.mark.parametrize(("source", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_failed_import_names_its_reason_and_leaves_nothing(
    import_files: Import,
    user: MemoryUser,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    code: str,
    message: str,
) -> None:
    if code == "timeout":
        brief = dataclasses.replace(FOREIGN_LIMITS, wall_seconds=0.5)
        monkeypatch.setattr(limits, "FOREIGN_LIMITS", brief)
    found = finding(import_files(source, "rejected"))
    assert found["code"] == code
    assert message in found["message"]
    assert user.head is None
    assert user.last_seq == 0
    assert not EntryOutcome.objects.filter(user=user).exists()


def test_two_objects_of_one_id_are_both_kept(import_files: Import, fields_of: Records) -> None:
    run = import_files(
        "from dataclasses import dataclass\n\n@dataclass\nclass A:\n    id: int\n    n: int\n\n"
        "a = [A(1, 1), A(1, 2)]\n"
    )
    assert [one["n"] for one in fields_of("memory.a").values()] == [1, 2]
    assert any(note["kind"] == "keyed" for note in report(run)["notes"])


def test_a_domain_that_exists_is_not_overwritten(import_files: Import, user: MemoryUser) -> None:
    import_files(MODULE)
    assert finding(import_files(MODULE, "rejected"))["code"] == "domain_exists"
    assert user.head is not None
    assert user.head.version == 1


def test_entries_that_come_in_meanwhile_delay_an_import_and_lose_nothing(
    import_files: Import, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given somebody who writes between the gate and the commit,
    real = checks.judge
    wrote: list[LogEntry] = []

    def judge(*args: Any, **options: Any) -> Verdict:
        if not wrote:
            wrote.extend(
                entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content="hi")], source="test")
            )
        return real(*args, **options)

    monkeypatch.setattr(checks, "judge", judge)
    # when a project is imported, then it cites the entry that is its own.
    import_files(MODULE)
    entry = LogEntry.objects.get(user=user, source="import")
    assert entry.seq == 2
    assert user.head is not None
    assert user.head.seen_seq == 2
    assert "sources=(2,)" in checkpoints.read_file(user.head, "domains/memory/state.py")


def test_an_import_is_redacted_with_its_records(
    import_files: Import, user: MemoryUser, work: Work, fields_of: Records
) -> None:
    # Given an import, and a record of another entry
    import_files({path: text.replace("Tokyo", MARKER) for path, text in PAPER.items()})
    own = {"domain": "travel", "type": "Stay", "key": "a", "data": {"where": "Bonn"}}
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=own)], source="test")
    work()

    # When the entry of the import is redacted
    redaction.redact(user, [1], by="test", reason="")
    work()

    # Then only the other record is left
    assert found() == []
    assert list(fields_of("travel.stays")) == ["a"]
    assert fields_of("travel.trips") == {}
    user.refresh_from_db()
    assert Redaction.objects.get(user=user).records == 3
    assert list(problems(user)) == []
