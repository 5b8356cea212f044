"""Every benchmark runs in its smallest form, so that none of them rots.

Recorded data comes from UAC_DATA_DIR, or is invented if that is not set.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from deploy.embedded.process import die_with_parent
from tests.benchmarks import recorded_data
from tests.system import PATIENT
from tests.waiting import scaled

pytestmark = pytest.mark.extended

FOLDER = Path(benchmarks.__file__).parent
ROOT = FOLDER.parent


def _is_program(path: Path) -> bool:
    body = ast.parse(path.read_text()).body
    has_main = any(isinstance(one, ast.FunctionDef) and one.name == "main" for one in body)
    guards = (ast.unparse(one.test) for one in body if isinstance(one, ast.If))
    return has_main and "__name__ == '__main__'" in guards


PROGRAMS = {
    path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py")) if _is_program(path)
}
DATA_PROGRAMS = [
    name
    for name, source in PROGRAMS.items()
    if "UAC_DATA_DIR" in (ast.get_docstring(ast.parse(source)) or "")
]

# Figures that have goals.
BUDGETS = (3000, 1500)
FIGURES = {
    "analytical": {"cases", "correct", "evidence_correct", "ten_domains_correct"},
    "retrieval": {
        *(f"{way}_{budget}" for budget in BUDGETS for way in ("evidence", "words", "meaning")),
        *(f"{way}_{budget}" for budget in BUDGETS for way in ("bm25", "ts_rank", "minilm")),
        *(f"beam{way}_{budget}" for budget in BUDGETS for way in ("", "_words", "_meaning")),
        *(f"beam_plain_{budget}" for budget in BUDGETS),
        *("p50_ms", "p50_ms_10000", "p50_ms_50000", "compare_ms_100000"),
        *("index_kib_per_1000", "kept_kib_per_1000", "searching_kib_per_1000"),
        "indexed_per_second",
    },
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of recorded data."""
    if folder := os.environ.get("UAC_DATA_DIR"):
        return folder
    made = tmp_path_factory.mktemp("recorded")
    recorded_data.write(made)
    return str(made)


def run(name: str, *arguments: str, data: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark as an operator does, without the tests' settings, except longer waits."""
    kept_out = ("UAC_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "STATIC_ROOT", "SECRET_KEY")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(kept_out)
    }
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        env={**environment, **PATIENT, "UAC_DATA_DIR": data},
        capture_output=True,
        text=True,
        timeout=scaled(880),
        check=False,
        preexec_fn=die_with_parent(15),
    )


def numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in a document of JSON."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from numbers(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.docker] if "docker" in source.lower() else [])
        for name, source in PROGRAMS.items()
    ],
)
def test_benchmark_runs_in_its_smallest_form(name: str, data: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"

    finished = run(name, "--quick", "--json", str(path), data=data)

    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    assert re.search(r"^[|\s-]*---[|\s-]*$", finished.stdout, re.MULTILINE), "no table"
    report = json.loads(path.read_text())
    assert list(numbers([report["figures"], report.get("rows")])), report
    assert [one for one in FIGURES.get(name, set()) if one not in report["figures"]] == []


@pytest.mark.parametrize("name", DATA_PROGRAMS)
def test_benchmark_says_which_file_it_misses(name: str) -> None:
    finished = run(name, "--quick", data="")

    assert finished.returncode == 2, finished.stderr[-4000:]
    assert re.fullmatch(r"\w+\.jsonl? is missing: UAC_DATA_DIR must .+\n", finished.stderr)
