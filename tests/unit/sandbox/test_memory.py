"""Memory and processor time that every sandbox takes before it does any work."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# OpenSSL and the like: they take megabytes in each of many containers.
DEAR = {"_hashlib", "_ssl", "asyncio", "email", "http", "multiprocessing", "socket"}
# They add a third to the time that all imports take.
SLOW = {"importlib.abc", "importlib.resources", "pathlib", "platform", "tempfile", "uuid"}


def test_runner_imports_no_large_module_that_is_seldom_needed() -> None:
    code = (
        "import json, sys\n"
        "from sandbox_image import runner\n"
        "runner.prepare()\n"
        "print(json.dumps(list(sys.modules)))"
    )
    command = [sys.executable, "-s", "-S", "-c", code]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    modules = set(json.loads(told))

    assert "sandbox_image.forecasting" in modules
    assert (DEAR | SLOW) & modules == set()
