"""Types are checked as strictly as ours, in a container of its own, without side effects."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker as engine
import pytest
from django.test import override_settings

from tests.integration.sandbox.conftest import sandbox_error
from tests.integration.sandbox.containers import Containers
from workers.sandbox import build, container_template, process
from workers.sandbox.build import ImageNotBuilt, ensure_image, ensure_typecheck_image
from workers.sandbox.docker import ContainerChannel
from workers.typecheck import checker
from workers.typecheck.checker import TypeFault, check_types

PROJECT = {
    "domains/__init__.py": "",
    "domains/travel/__init__.py": "",
    "domains/travel/schema.py": """\
import datetime
from dataclasses import dataclass
from uac import Record


@dataclass(kw_only=True)
class Trip(Record):
    to: str
    on: datetime.date | None = None
""",
    "domains/travel/state.py": "from domains.travel.schema import Trip\ntrips: list[Trip]\n",
    "constraints/__init__.py": "",
}
RULE = """\
import datetime
from collections.abc import Iterator
from uac import Alert, info
from domains.travel.state import trips


def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        if {condition}:
            yield info(trip.to, evidence=[trip])
"""


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every way to check types in turn."""
    if request.param == "docker":
        ensure_typecheck_image(ensure_image())
    with override_settings(UAC_SANDBOX_RUNNER=request.param):
        yield request.param


def check(condition: str, **files: str) -> list[TypeFault]:
    return check_types(
        {**PROJECT, "constraints/rule.py": RULE.format(condition=condition), **files}
    )


@pytest.mark.parametrize(
    ("condition", "code", "words"),
    [
        ("trip.on < today", "operator", 'Unsupported operand types for > ("date" and "None")'),
        ("trip.form == 'x'", "attr-defined", '"Trip" has no attribute "form"'),
        ("trip.to > 3", "operator", 'Unsupported operand types for > ("str" and "int")'),
        ("len(trip)", "arg-type", 'incompatible type "Trip"; expected "Sized"'),
        ("undefined", "name-defined", 'Name "undefined" is not defined'),
        ("trip.to == 3", "comparison-overlap", "Non-overlapping equality check"),
        ("(yield 3)", "misc", "Incompatible types"),
    ],
)
def test_each_mistake_has_its_place(runner: str, condition: str, code: str, words: str) -> None:
    (fault,) = check(condition)

    assert (fault.path, fault.line, fault.code) == ("constraints/rule.py", 9, code)
    assert words in fault.message


def test_good_code_has_none(runner: str) -> None:
    assert check("trip.on is not None and trip.on < today") == []
    assert (
        check("trip.on", **{"tests/test_rule.py": "def test_it() -> None:\n    assert 1\n"}) == []
    )


def test_missing_annotation_is_found(runner: str) -> None:
    found = check("trip.on", **{"tests/test_rule.py": "def test_it():\n    pass\n"})

    assert [(fault.path, fault.line, fault.code) for fault in found] == [
        ("tests/test_rule.py", 1, "no-untyped-def")
    ]


def test_code_that_does_not_parse_is_found(runner: str) -> None:
    (fault,) = check("trip.on", **{"tests/test_rule.py": "def test_it(:\n"})

    assert (fault.path, fault.line, fault.code) == ("tests/test_rule.py", 1, "syntax")


def test_no_configuration_and_no_plugin_is_read(runner: str) -> None:
    settings = "[mypy]\nignore_errors = true\nplugins = evil.py\n"
    files = dict.fromkeys(("mypy.ini", ".mypy.ini", "setup.cfg"), settings)
    files["pyproject.toml"] = "[tool.mypy]\nignore_errors = true\nplugins = ['evil.py']\n"
    files["evil.py"] = "raise SystemExit\n"

    faults = check_types(
        {**PROJECT, "constraints/rule.py": RULE.format(condition="trip.to > 3"), **files}
    )

    assert "constraints/rule.py" in [fault.path for fault in faults]


def test_check_leaves_nothing_to_the_next(runner: str) -> None:
    check("trip.on", **{"domains/secret.py": "SECRET = 1\n"})

    (fault,) = check("trip.on", **{"tests/test_x.py": "from domains.secret import SECRET\n"})

    assert fault.code == "import-not-found"


def test_too_much_code_is_refused(runner: str) -> None:
    with sandbox_error("input_limit", infrastructure=False):
        check_types({"a.py": "#" * 70_000_000})


class TestProcess:
    @pytest.fixture(autouse=True)
    def in_processes(self) -> Iterator[None]:
        with override_settings(UAC_SANDBOX_RUNNER="process"):
            yield

    def test_checker_stays_for_the_next_check(self) -> None:
        check("trip.on")
        before = list(process._idle)

        check("trip.to > 3")

        assert before
        assert process._idle == before

    def test_a_dead_one_is_replaced(self) -> None:
        check("trip.on")
        for idle in process._idle:
            idle._process.kill()
            idle._process.wait()

        (fault,) = check("trip.to > 3")

        assert fault.code == "operator"
        assert [idle.has_ended() for idle in process._idle] == [False]

    def test_checker_that_does_not_answer_is_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        check("trip.on")
        idle = list(process._idle)
        monkeypatch.setattr(checker, "DEADLINE_SECONDS", 0.001)

        with sandbox_error(infrastructure=True):
            check("trip.on")

        assert process._idle == []
        assert all(one.has_ended() for one in idle)


@pytest.mark.docker
class TestContainer:
    @pytest.fixture(autouse=True)
    def image(self) -> Iterator[str]:
        name = ensure_typecheck_image(ensure_image())
        with override_settings(UAC_SANDBOX_RUNNER="docker"):
            yield name

    def test_checker_uses_the_sandbox_template(self, monkeypatch: pytest.MonkeyPatch) -> None:
        created: list[dict[str, Any]] = []
        start = ContainerChannel.start

        def spy(channel: ContainerChannel) -> None:
            start(channel)
            with contextlib.closing(engine.from_env()) as client:
                created.append(client.api.inspect_container(channel.container))

        monkeypatch.setattr(ContainerChannel, "start", spy)
        with Containers() as mine:
            check("trip.on")
            assert mine.all() == []

        (container,) = created
        host = container["HostConfig"]
        assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("none", True)
        assert (host["CapDrop"], host["Memory"]) == (["ALL"], 1024 * 2**20)
        assert any("seccomp=" in option for option in host["SecurityOpt"])
        assert not container["Config"]["User"].startswith("0")

    def test_unconfined_checker_is_given_no_code(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        sent: list[bytes] = []
        monkeypatch.setattr(
            ContainerChannel, "send", lambda channel, data, deadline: sent.append(data)
        )
        profile = tmp_path / "profile"
        profile.write_text("unconfined")
        monkeypatch.setattr(container_template, "SECCOMP_PROFILE", profile)

        with sandbox_error(None, "not confined", infrastructure=True):
            check("trip.on")

        assert sent == []

    def test_container_that_does_not_answer_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checker, "DEADLINE_SECONDS", 0.01)

        with Containers() as mine, sandbox_error(infrastructure=True):
            check("trip.on")
        with mine:
            assert mine.all() == []

    @override_settings(UAC_TYPECHECK_IMAGE="uac-no-such-image:1")
    def test_without_the_image_it_is_said_how_to_build_it(self) -> None:
        with sandbox_error(
            None, "python -m workers.sandbox.build", "UAC_TYPECHECK_IMAGE", infrastructure=True
        ):
            check("trip.on")

    def test_a_base_with_another_python_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "_python_version", lambda: "3.99")

        with pytest.raises(ImageNotBuilt, match=r"mypy comes for 3\.99"):
            ensure_typecheck_image(ensure_image(), renew=True)
