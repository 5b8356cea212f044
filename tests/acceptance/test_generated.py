"""`make generate` writes what is generated from the code, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAY_CHANGE = {
    "docs/openapi.yaml",
    "memory/kernel/http/examples.json",
}  # how far the server was when the examples were recorded


def test_generated_files_are_up_to_date_and_no_others_are_written(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in files.stdout.split():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    node_modules = "clients/typescript/node_modules"
    (copy / node_modules).symlink_to(ROOT / node_modules)
    # The copy uses the installed packages, whatever the time of its files.
    installed = ("-o", ".venv/installed", "-o", f"{node_modules}/.package-lock.json")
    command = ["make", "generate", *installed]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "ALLOWED_HOSTS")
    }
    ended = subprocess.run(
        command, cwd=copy, env=environment, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    written = {
        str(path.relative_to(copy))
        for path in copy.rglob("*")
        if path.is_file()
        and not {".venv", "__pycache__", "node_modules"} & {*path.relative_to(copy).parts}
    }
    changed = {
        name
        for name in written
        if not (ROOT / name).is_file() or (ROOT / name).read_bytes() != (copy / name).read_bytes()
    }
    assert changed <= MAY_CHANGE
