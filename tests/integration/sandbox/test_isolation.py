"""An evaluation leaves nothing for the next, and user code reaches nothing of the server's."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import workers
from tests.integration.sandbox.conftest import PROJECT, WITHOUT_NAMESPACES, value_of
from tests.steps import not_none
from tests.waiting import scaled
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.results import SandboxError

# Environment variables of an ordinary Python image.
PYTHON_IMAGE = {"GPG_KEY", "LANG", "PYTHON_SHA256", "PYTHON_VERSION"}


def attempt(sandbox: Sandbox, code: str, **limits: float) -> str:
    """Return the value, or the error that the user sees."""
    try:
        return str(value_of(sandbox, code, **limits))
    except SandboxError as error:
        return error.error.type if error.error else error.outcome


def test_globals_modules_and_state_are_as_before(loaded: Sandbox) -> None:
    value_of(
        loaded,
        "import builtins, sys, math\nbuiltins.leak = math.leak = 1\nsys.modules['leak'] = math\n"
        "trips.clear()\npassport.number = 'changed'\nTrip.leak = 1\nimport uac\nuac.leak = 1\n"
        "import linecache, os\nlinecache.cache.clear()\nos.environ['LEAK'] = '1'\nleak = 1",
    )
    assert attempt(loaded, "leak") == "NameError"
    assert attempt(loaded, "math.leak") == "AttributeError"
    assert attempt(loaded, "import leak") == "ModuleNotFoundError"
    assert attempt(loaded, "Trip.leak") == "AttributeError"
    assert attempt(loaded, "import uac\nuac.leak") == "AttributeError"
    assert value_of(loaded, "[len(trips), passport.number]") == [3, "X1"]
    assert value_of(loaded, "import os\n'LEAK' in os.environ") is False


def test_environment_has_no_host_secret(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hidden")
    with runner.start() as sandbox:
        names = value_of(sandbox, "import os\nsorted(os.environ)")
    assert isinstance(names, list)
    # Python sets the second, and the runner the third: it is UTC everywhere.
    ours = {"PYTHONHASHSEED", "LC_CTYPE", "TZ"}
    images = (
        {"HOME", "HOSTNAME", "PATH", *PYTHON_IMAGE} if sandbox.runner_name == "docker" else set()
    )
    assert set(names) <= ours | images


@pytest.mark.parametrize(
    "folder", ["/", "/tmp", "/dev/shm", "/var/tmp", "/run", ".", str(Path.home())]
)
def test_no_file_can_be_written(isolated: Sandbox, folder: str) -> None:
    path = str(Path(folder) / "uac-sandbox-leak")
    with pytest.raises(SandboxError) as raised:
        value_of(isolated, f"open({path!r}, 'w').write('x' * 100_000)")
    assert not_none(raised.value.error).type in ("FileNotFoundError", "OSError", "PermissionError")
    assert not Path(path).exists()


def test_an_evaluation_starts_no_process_and_no_thread(loaded: Sandbox) -> None:
    assert attempt(loaded, "import os\nos.fork()") == "BlockingIOError"
    assert attempt(loaded, "import os\nos.posix_spawn('/bin/true', ['true'], {})") in (
        "BlockingIOError",
        "FileNotFoundError",
        "PermissionError",
    )
    threads = "import threading\nthreading.Thread(target=print).start()"
    assert attempt(loaded, threads) == "RuntimeError"
    raise_it = "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (9, 9))"
    assert attempt(loaded, raise_it) == "ValueError"


def test_user_code_runs_as_nobody_important(loaded: Sandbox) -> None:
    identity = "import os\nlist({*os.getresuid(), *os.getresgid(), *os.getgroups()})"
    users = value_of(loaded, identity)
    assert isinstance(users, list)
    assert 0 not in users
    # Either refused, or an id that its user namespace does not have (EINVAL).
    refused = attempt(loaded, "import os\nos.setuid(0)")
    assert refused in ("PermissionError", "OSError")


def test_user_code_cannot_stop_or_read_the_runner(loaded: Sandbox) -> None:
    for number in ("SIGKILL", "SIGINT"):
        kill = f"import os, signal\nos.kill(os.getppid(), signal.{number})"
        assert attempt(loaded, kill) in ("None", "PermissionError", "ProcessLookupError")
    trace = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.ptrace(16, os.getppid(), 0, 0)"
    )
    assert value_of(loaded, trace) == -1
    assert loaded.alive
    assert value_of(loaded, "1") == 1


def test_user_code_holds_no_descriptor_of_the_protocol(loaded: Sandbox) -> None:
    held = (
        "import os\n"
        "def held(n):\n"
        "    try: return bool(os.fstat(n))\n"
        "    except OSError: return False\n"
        "[n for n in range(1024) if held(n)]"
    )
    assert value_of(loaded, held) == [0, 1, 2, 3]


def test_sandbox_has_no_network(isolated: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)"
        assert attempt(isolated, code) in ("OSError", "PermissionError")
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_file_system_is_the_standard_library_alone(isolated: Sandbox) -> None:
    for path in ("/etc/passwd", "/proc/1/environ", workers.__file__, __file__):
        assert attempt(isolated, f"open({path!r}).read()") in (
            "FileNotFoundError",
            "NotADirectoryError",
            "PermissionError",
        )
    assert value_of(isolated, "import json\njson.loads('1')") == 1  # late imports still work
    assert attempt(isolated, "import os\nopen(os.__file__, 'a')") in ("OSError", "PermissionError")


def test_two_sandboxes_share_nothing(runner: Runner, loaded: Sandbox) -> None:
    with runner.start(hash_seed=7) as other:
        other.load({"domains/a/state.py": "x = 1"})
        assert attempt(other, "trips") == "NameError"
        assert attempt(loaded, "import domains.a") == "ModuleNotFoundError"
        assert value_of(other, "hash('x')") != value_of(loaded, "hash('x')")
    with runner.start(hash_seed=7) as again:
        seven = value_of(again, "hash('x')")
    with runner.start(hash_seed=7) as again:
        assert value_of(again, "hash('x')") == seven


SWEEP = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from sandbox_image.processes import PR_SET_CHILD_SUBREAPER, kill_descendants, prctl

prctl(PR_SET_CHILD_SUBREAPER, 1)
read, write = os.pipe()

def linger():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.write(write, b"%d\\n" % os.getpid())
    while True:
        time.sleep(60)

for shape in ("child", "session", "daemon", "family"):
    if os.fork() == 0:
        if shape != "child":
            os.setsid()
        if shape in ("daemon", "family") and os.fork() != 0:
            os._exit(0)
        if shape == "family":
            os.fork()
        linger()

pids = []
while len(pids) < 5:
    pids += os.read(read, 100).split()
kill_descendants()
for pid in pids:
    try:
        os.kill(int(pid), 0)
        print("survived", pid)
    except ProcessLookupError:
        pass
kill_descendants()
print("done")
"""


def run_python(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=scaled(240), check=False)


def test_daemons_orphans_and_the_deaf_are_swept() -> None:
    # Code that cannot fork leaves nothing to sweep, so the sweep is tested by itself.
    code = SWEEP.format(root=str(Path(workers.__file__).parent.parent))
    swept = run_python(code)
    assert (swept.returncode, swept.stdout) == (0, "done\n")


def test_without_namespaces_it_still_is_no_root_and_cleans_up() -> None:
    """In most containers, for example, the kernel allows no namespaces."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to do without its privileges")
    code = f"""
        import datetime, sys
        sys.path.insert(0, {str(Path(workers.__file__).parent.parent)!r})
        {WITHOUT_NAMESPACES}
        from workers.sandbox import process
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        with process.start() as sandbox:
            sandbox.load({PROJECT!r})
            for query in ("import os\\n[os.getuid(), os.getpid() == 1]", "len(trips)",
                          "statistics.mean([1, 3])", "str(now.tzinfo)"):
                print(sandbox.evaluate(query, now=now, time_zone="Europe/Berlin").value)
            try:
                sandbox.evaluate("import os\\nos.fork()", now=now, time_zone="UTC")
            except Exception as error:
                print(error.error.type)
    """
    ran = run_python(textwrap.dedent(code))
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "[65534, False]",
        "3",
        "2",
        "Europe/Berlin",
        "BlockingIOError",
    ]
