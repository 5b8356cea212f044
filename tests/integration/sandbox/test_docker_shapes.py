"""Properties of a container from its creation: memory, processes, and where it can write."""

from collections.abc import Iterator

import pytest

from memory.kernel.settings.environment import SETTINGS
from memory.kernel.settings.sandbox_limits import ceiling
from tests.integration.sandbox.conftest import NOW, PROJECT, sandbox_error, value_of
from tests.integration.sandbox.test_docker_confinement import WRITABLE
from workers.sandbox import docker
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import MEBIBYTE, Limits, Shape
from workers.sandbox.results import SandboxError

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]

WITH_TMPFS = Shape(memory_mib=256, pids=20, tmpfs_mib=2)


@pytest.fixture(scope="module")
def writable(docker_image: str) -> Iterator[Sandbox]:
    """A sandbox with a tmpfs of 2 MiB, which every test leaves unchanged."""
    with docker.start(shape=WITH_TMPFS) as sandbox:
        sandbox.load(PROJECT)
        yield sandbox
        assert sandbox.alive


def error_of(sandbox: Sandbox, code: str) -> str:
    with sandbox_error("user_error") as raised:
        value_of(sandbox, code)
    return raised.value.message


def control_group(name: str) -> str:
    """Return code that reads a limit, in either version of control groups."""
    paths = {
        "memory": ("memory.max", "memory/memory.limit_in_bytes"),
        "pids": ("pids.max", "pids/pids.max"),
    }
    paths_of_name = [f"/sys/fs/cgroup/{path}" for path in paths[name]]
    return f"import os\n[int(open(p).read()) for p in {paths_of_name} if os.path.exists(p)]"


def test_the_kernel_holds_it_to_its_shape(writable: Sandbox) -> None:
    assert value_of(writable, control_group("memory")) == [256 * MEBIBYTE]
    assert value_of(writable, control_group("pids")) == [20]


def least(name: str) -> int:
    return int(SETTINGS[name].minimum or 0)


def test_the_smallest_shape_still_works() -> None:
    smallest = Shape(memory_mib=least("UAC_SANDBOX_MEMORY_MIB"), pids=least("UAC_SANDBOX_PIDS"))
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
    fewest = Shape(pids=least("UAC_SANDBOX_PIDS"))
    tests = {f"tests/test_{n}.py": "def test_it(): pass\n" for n in range(60)}
    with docker.start(shape=fewest) as sandbox:
        sandbox.load({**PROJECT, **tests})
        for _ in range(2):
            ran = sandbox.run_tests(sorted(tests), limits=Limits(total_seconds=60))
            assert [result.error for result in ran.results] == [None] * 60


def test_the_deepest_result_that_may_be_allowed_fits_the_protocol(writable: Sandbox) -> None:
    """A dictionary whose keys are no text takes the most levels for one of the user's."""
    depth = int(ceiling("result_depth"))
    code = f"value = 1\nfor n in range({depth}): value = {{n: value}}\nvalue"

    assert "$dict" in value_of(writable, code, result_depth=depth)
    with pytest.raises(SandboxError, match=f"nested more than {depth} levels deep"):
        value_of(writable, code.replace(f"range({depth}", f"range({depth + 1}"), result_depth=depth)


def test_only_the_tmpfs_can_be_written(writable: Sandbox) -> None:
    found, seen = value_of(writable, WRITABLE)
    assert found == ["/tmp"]
    assert seen > 500  # it did look


def test_written_file_can_be_read_and_is_gone_afterwards(writable: Sandbox) -> None:
    written = "open('/tmp/a', 'w').write('x' * 1000)\nlen(open('/tmp/a').read())"
    assert value_of(writable, written) == 1000
    assert value_of(writable, "import os\nos.listdir('/tmp')") == []


def test_constraint_leaves_no_file_for_the_next() -> None:
    code = """\
def check(today):
    import os
    left = os.listdir("/tmp")
    open("/tmp/{name}", "w").write("x")
    return [f"found {{name}}" for name in left]
"""
    project = {f"constraints/{name}.py": code.format(name=name) for name in ("a", "b")}
    with docker.start(shape=WITH_TMPFS) as sandbox:
        sandbox.load({**PROJECT, **project})
        ran = sandbox.run_constraints(sorted(project), now=NOW, time_zone="UTC")
        assert [(result.alerts, result.error) for result in ran.results] == [((), None)] * 2


def test_loading_leaves_no_file() -> None:
    with docker.start(shape=WITH_TMPFS) as sandbox:
        sandbox.load({"domains/a/state.py": "open('/tmp/left', 'w').write('x')"})
        assert value_of(sandbox, "import os\nos.listdir('/tmp')") == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("open('/tmp/a', 'wb').write(b'x' * 3 * 2 ** 20)", "File too large"),
        ("for n in range(9): open(f'/tmp/{n}', 'wb').write(b'x' * 2 ** 19)", "No space left"),
        ("for n in range(9999): open(f'/tmp/{n}', 'wb')", "No space left"),
        ("import os\nos.mkdir('/tmp/a')", "Operation not permitted"),
        ("import os\nos.symlink('/', '/tmp/a')", "Operation not permitted"),
        ("import os\nos.mkfifo('/tmp/a')", "Operation not permitted"),
        ("import os\nopen('/tmp/a', 'w')\nos.rename('/tmp/a', '/tmp/b')", "not permitted"),
        ("import os\nos.unlink('/opt/uac/sandbox_image/child.py')", "Read-only file system"),
        ("open('/a', 'w')", "Read-only file system"),
    ],
)
def test_more_cannot_be_done_with_it(writable: Sandbox, code: str, told: str) -> None:
    assert told in error_of(writable, code)
    assert value_of(writable, "import os\n[os.listdir('/tmp'), len(trips)]") == [[], 3]


def test_files_of_the_tmpfs_cannot_be_executed(writable: Sandbox) -> None:
    copy = (
        "import ctypes, mmap, os, sys\n"
        "file = os.open('/tmp/a', os.O_CREAT | os.O_RDWR, 0o777)\n"
        "os.write(file, open(sys.executable or '/proc/self/exe', 'rb').read(2 ** 20))\n"
    )
    assert "Operation not permitted" in error_of(
        writable, copy + "mmap.mmap(file, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)"
    )
    assert "Permission denied" in error_of(
        writable, copy + "os.close(file)\nos.execv('/tmp/a', ['a'])"
    )


def test_a_full_one_and_all_the_memory_there_may_be_fit_into_the_container() -> None:
    """Files in /tmp count as the container's memory, so their share is set aside."""
    shape = Shape(memory_mib=128 + 256, tmpfs_mib=256)
    large = {"domains/a/state.py": "x = bytearray(25 * 2 ** 20)"}
    fill = (
        "for n in range(255): open(f'/tmp/{n}', 'wb').write(b'x' * 2 ** 20)\n"
        "taken = []\nwhile True: taken.append(b'x' * 2 ** 20)"
    )
    with docker.start(shape=shape) as sandbox:
        sandbox.load({**PROJECT, **large})
        with sandbox_error("out_of_memory", infrastructure=False):
            value_of(sandbox, fill)
        # Python stops it, and not the kernel.
        assert value_of(sandbox, "import os\n[os.listdir('/tmp'), len(trips)]") == [[], 3]
