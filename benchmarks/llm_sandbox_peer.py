"""For comparison, do the same work with the `llm-sandbox` library and its own pool of containers.

The library's containers use the same image as ours, plus the few programs that it calls. They are
less confined, since the library needs more privileges, and they are not destroyed after use, since
the library does not do that.
"""

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker

from workers.sandbox.build import run_program

PROGRAMS = ("mkdir", "chown", "sleep", "sh", "rm", "ls")
# A script that loads a project from its source and runs its constraints.
SCRIPT = """\
import datetime, json, sys, types
sys.path.insert(0, "/opt/uac")
from sandbox_image import uac
sys.modules["uac"] = uac
files = json.loads({files!r})
order = sorted(files, key=lambda path: (path.startswith("constraints"), path.count("/")))
for path in order:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    module = sys.modules[name] = types.ModuleType(name)
    if path.endswith("__init__.py"):
        module.__path__ = []
    exec(compile(files[path], path, "exec"), vars(module))
today = datetime.date(2026, 3, 1)
found = [
    [alert.severity, alert.message, [[one.key, one.sources] for one in alert.evidence]]
    for name in sorted(sys.modules) if name.startswith("constraints.")
    for alert in sys.modules[name].check(today=today)
]
print(json.dumps(found))
"""


@contextmanager
def peer(image: str, project: Mapping[str, str]) -> Iterator[Callable[[], int]]:
    """Open a warm pool; yield a function that runs the project once and returns how many alerts."""
    from llm_sandbox import SandboxBackend, SandboxSession
    from llm_sandbox.pool import PoolConfig, create_pool_manager

    client = docker.from_env()
    code = SCRIPT.format(files=json.dumps(dict(project)))
    pool = create_pool_manager(
        backend=SandboxBackend.DOCKER,
        config=PoolConfig(min_pool_size=2, max_pool_size=4),
        lang="python",
        image=_image_with_programs(client, image),
        client=client,
        skip_environment_setup=True,
        runtime_configs={
            "entrypoint": ["sleep", "1000000"],
            "network_mode": "none",
            "mem_limit": "1g",
        },
    )

    def run() -> int:
        with SandboxSession(lang="python", pool=pool) as session:
            answer = session.run(code)
        if answer.exit_code:
            raise RuntimeError(answer.stderr)
        alerts: list[Any] = json.loads(answer.stdout)
        return len(alerts)

    try:
        yield run
    finally:
        pool.close()
        client.close()


def _image_with_programs(client: docker.DockerClient, image: str) -> str:
    """Build the image plus `busybox` for the programs that the library calls; return its tag."""
    with tempfile.TemporaryDirectory() as folder:
        run_program(["apt-get", "--quiet", "download", "busybox-static"], Path(folder))
        (package,) = Path(folder).glob("*.deb")
        run_program(["dpkg-deb", "--extract", str(package), folder])
        busybox = (Path(folder) / "bin/busybox").read_bytes()
    prepare = (
        f"import os; [os.symlink('busybox', '/bin/' + name) for name in {PROGRAMS}]; "
        "os.makedirs('/sandbox/.sandbox-venv/bin'); os.makedirs('/tmp', exist_ok=True); "
        "os.symlink('/usr/bin/python3', '/sandbox/.sandbox-venv/bin/python')"
    )
    dockerfile = (
        f"FROM {image}\nUSER 0:0\nCOPY busybox /bin/busybox\nCOPY passwd /etc/passwd\n"
        f"RUN {json.dumps(['python3', '-c', prepare])}\n"
    )
    files = {"Dockerfile": dockerfile.encode(), "busybox": busybox, "passwd": b"root:x:0:0::/:\n"}
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    context.seek(0)
    built, _ = client.images.build(
        fileobj=context, custom_context=True, rm=True, tag="uac-sandbox:llm-sandbox-peer"
    )
    return str(built.tags[0])
