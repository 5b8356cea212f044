"""Properties of a container from its creation: memory and processes."""

from collections.abc import Iterator

import pytest

from memory.kernel.settings.environment import SETTINGS
from memory.kernel.settings.sandbox_limits import ceiling
from tests.integration.sandbox.conftest import NOW, PROJECT, value_of
from workers.sandbox import container_template, docker
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import MEBIBYTE, Limits, Shape
from workers.sandbox.results import SandboxError

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]

SMALL = Shape(memory_mib=256)


@pytest.fixture(scope="module")
def small(docker_image: str) -> Iterator[Sandbox]:
    """A sandbox with little memory, which every test leaves unchanged."""
    with docker.start(shape=SMALL) as sandbox:
        sandbox.load(PROJECT)
        yield sandbox
        assert sandbox.alive


def control_group(name: str) -> str:
    """Return code that reads a limit, in either version of control groups."""
    paths = {
        "memory": ("memory.max", "memory/memory.limit_in_bytes"),
        "pids": ("pids.max", "pids/pids.max"),
    }
    paths_of_name = [f"/sys/fs/cgroup/{path}" for path in paths[name]]
    return f"import os\n[int(open(p).read()) for p in {paths_of_name} if os.path.exists(p)]"


def test_the_kernel_holds_it_to_its_shape(small: Sandbox) -> None:
    assert value_of(small, control_group("memory")) == [256 * MEBIBYTE]
    assert value_of(small, control_group("pids")) == [container_template.PIDS]


def least(name: str) -> int:
    return int(SETTINGS[name].minimum or 0)


def test_the_smallest_shape_still_works() -> None:
    smallest = Shape(memory_mib=least("UAC_SANDBOX_MEMORY_MIB"))
    limits = Limits(memory_bytes=least("UAC_SANDBOX_PROCESS_MEMORY_MIB") * MEBIBYTE)
    with docker.start(shape=smallest) as sandbox:
        sandbox.load(bytecode=sandbox.compile(PROJECT))
        assert sandbox.dump().counts["travel"]["trips"] == 3
        for run in (
            sandbox.run_constraints(now=NOW, time_zone="UTC", limits=limits),
            sandbox.run_tests(limits=limits),
        ):
            assert [result.error for result in run.results if result.error] == []
        assert sandbox.evaluate("len(trips)", now=NOW, time_zone="UTC", limits=limits).value == 3


def test_few_processes_are_enough_for_any_number_of_test_files() -> None:
    tests = {f"tests/test_{n}.py": "def test_it(): pass\n" for n in range(60)}
    with docker.start() as sandbox:
        sandbox.load({**PROJECT, **tests})
        for _ in range(2):
            ran = sandbox.run_tests(sorted(tests), limits=Limits(total_seconds=60))
            assert [result.error for result in ran.results] == [None] * 60


def test_the_deepest_result_that_may_be_allowed_fits_the_protocol(small: Sandbox) -> None:
    """A dictionary whose keys are no text takes the most levels for one of the user's."""
    depth = int(ceiling("result_depth"))
    code = f"value = 1\nfor n in range({depth}): value = {{n: value}}\nvalue"

    assert "$dict" in value_of(small, code, result_depth=depth)
    with pytest.raises(SandboxError, match=f"nested more than {depth} levels deep"):
        value_of(small, code.replace(f"range({depth}", f"range({depth + 1}"), result_depth=depth)
