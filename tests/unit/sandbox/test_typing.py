"""The library passes a strict type checker in user code, which catches mistakes."""

import subprocess
import sys
from pathlib import Path

import sandbox_image

GOOD = """
import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field

from uac import Alert, PartialDate, Record, Ref, critical, info
from uac.testing import run_check


@dataclass(kw_only=True)
class Passport(Record):
    expires: datetime.date | None = None
    issued: PartialDate | None = None


@dataclass(kw_only=True)
class Trip(Record):
    name: str
    passport: Ref[Passport] | None = None
    stops: list[str] = field(default_factory=list)


passports: list[Passport] = [Passport(key="p-1", issued=PartialDate("2021-11"), sources=(1,))]
trips: list[Trip] = [Trip(key="t-1", name="Rome", passport=Ref[Passport]("p-1"))]


def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        if trip.passport is None:
            yield info(f"{trip.name} needs a passport", evidence=[trip])
            continue
        passport = trip.passport.get()
        if passport.expires and passport.expires < today:
            yield critical(f"{trip.name}: expired", evidence=[trip, passport])
        if passport.issued and (passport.issued < today or today > passport.issued):
            yield critical(f"{trip.name}: issued", evidence=trips, key=trip.passport.key)


def test_it() -> None:
    import good

    alerts = run_check(good, today=datetime.date(2026, 1, 1), trips=[])
    assert [alert.message for alert in alerts] == []
"""

BAD = """
from good import Passport, Trip, passports
from uac import Ref, critical

Trip(key="t", nme="Rome")
Trip(key="t", name=3)
Trip(key="t", name="Rome", passport=Ref[Trip]("t"))
Ref[Passport]("p-1").get().nme
Ref[Passport](3)
critical("x", evidence=[p.key for p in passports])
Trip("t", name="Rome")
"""


def test_strict_mypy_passes_good_code_and_finds_each_mistake(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)

    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            *("--config-file=", f"--cache-dir={tmp_path / 'cache'}", "good.py", "bad.py"),
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(sandbox_image.__file__).parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert not checked.stderr
    found = [line.split(": error:")[0] for line in checked.stdout.splitlines() if "error:" in line]
    assert found == [f"bad.py:{line}" for line in range(5, 12)], checked.stdout
