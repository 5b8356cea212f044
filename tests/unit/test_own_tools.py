"""Tools of these tests: how they wait, draw examples, and set tests aside."""

import ast
import datetime
import os
import subprocess
from pathlib import Path

import hypothesis
import pytest
from django.utils import timezone
from hypothesis import strategies as st

from tests.conftest import UNKNOWN
from tests.quarantine import MAX_DAYS, QUARANTINED, Quarantined
from tests.releases import find_previous_release
from tests.tiers import ROTATION, SHARES, WHOLE, is_extended, rows_left_out
from tests.waiting import eventually, polled

CHECKOUT = Path(__file__).parents[2]


def test_waits_end_when_it_has_come_and_say_so_when_it_has_not() -> None:
    looks = iter(range(10))

    assert eventually(lambda: next(looks) == 3)
    assert polled(lambda: next(looks), lambda seen: seen >= 6) == 6
    assert not eventually(lambda: False, seconds=0)
    with pytest.raises(AssertionError, match="not within 0 s; last seen: 'nothing'"):
        polled(lambda: "nothing", lambda seen: False, seconds=0)


@hypothesis.given(st.integers())
def draws(number: int) -> None:
    """A property without settings of its own."""


def test_properties_have_no_deadline_and_the_same_examples_in_ci() -> None:
    settings = draws._hypothesis_internal_use_settings  # type: ignore[attr-defined]

    assert settings.deadline is None
    assert settings.derandomize == bool(os.environ.get("CI"))


def test_no_property_sets_what_the_profile_sets() -> None:
    sources = [file.read_text() for file in (CHECKOUT / "tests").rglob("test_*.py")]
    calls = [
        call
        for source in sources
        if "settings(" in source
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("settings", "hypothesis.settings")
    ]
    assert len(calls) > 10, "the pattern finds settings"
    for call in calls:
        given = {option.arg: ast.unparse(option.value) for option in call.keywords}
        assert given.get("deadline", "None") == "None", ast.unparse(call)
        assert not {"derandomize", "database"} & given.keys(), ast.unparse(call)


def is_overdue(one: Quarantined) -> bool:
    return timezone.now().date() - one.since > datetime.timedelta(MAX_DAYS)


@pytest.mark.parametrize(("days", "expected"), [(0, False), (MAX_DAYS, False), (15, True)])
def test_a_quarantine_ends(days: int, expected: bool) -> None:
    since = timezone.now().date() - datetime.timedelta(days)

    assert is_overdue(Quarantined("it sometimes fails", since)) is expected


def test_no_test_is_set_aside_for_long_or_without_a_reason() -> None:
    assert [name for name, one in QUARANTINED.items() if is_overdue(one)] == []
    assert [name for name, one in QUARANTINED.items() if not one.reason.strip()] == []


def test_every_test_that_is_listed_exists(pytestconfig: pytest.Config) -> None:
    files = {name.partition("::")[0] for name in QUARANTINED}
    assert [file for file in files if not (CHECKOUT / file).is_file()] == []
    assert pytestconfig.stash.get(UNKNOWN, []) == []


@pytest.mark.parametrize(
    "file", ["integration/api/test_a.py", "integration/api/test_b.py", "unit/test_patterns.py"]
)
def test_every_row_has_a_turn_within_the_rotation(file: str) -> None:
    test = f"tests/{file}::test_it"
    rows = [f"{test}[{number}]" for number in range(40)]
    turns = [turn for turn in range(ROTATION) if not is_extended(test, turn)]
    ran = [{*rows} - rows_left_out(test, rows, turn) for turn in turns]

    assert len(turns) == (ROTATION // SHARES if "api" in file else ROTATION)
    assert set.union(*ran) == {*rows}
    assert all(10 <= len(some) < 20 for some in ran)


def test_attacks_and_permissions_have_every_turn() -> None:
    for turn in range(ROTATION):
        for file in (one for one in WHOLE if one.endswith(".py")):
            assert not is_extended(f"{file}::test_it", turn)
            rows = [f"{file}::test_it[{number}]" for number in range(4)]
            assert not rows_left_out(f"{file}::test_it", rows, turn)


def test_the_upgrade_is_tested_from_the_first_tag_on(tmp_path: Path) -> None:
    repository, shallow = tmp_path / "repository", tmp_path / "shallow"

    def git(*arguments: str, folder: Path = repository) -> None:
        author = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", "-C", str(folder), *author, *arguments], check=True)

    repository.mkdir()
    git("init", "--quiet")
    found = []
    for tag in ("", "v0.9.0", "v0.10.0", ""):
        git("commit", "--quiet", "--allow-empty", "--message=one")
        if tag:
            git("tag", tag)
        found.append(find_previous_release(repository))

    assert found == [None, None, "v0.9.0", "v0.10.0"]
    git("clone", "--quiet", "--depth=1", repository.as_uri(), str(shallow), folder=tmp_path)
    with pytest.raises(ValueError, match="shallow"):
        find_previous_release(shallow)
