"""Check the types of projects until the input ends: `python -m typecheck_image.checker CACHE`.

It exchanges the frames of the sandboxes (see sandbox_image/uac/protocol.py) on its standard input
and output: a hello, then requests {"files": path → source}, answered with {"outcome", "findings"}.
The files are given to mypy as they arrive; nothing is written, and no configuration is read. CACHE
holds mypy's data on the standard library and on `uac`: `--prepare` writes it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mypy.build import build
from mypy.errors import CompileError
from mypy.main import process_options
from mypy.modulefinder import BuildSource
from mypy.options import Options

import sandbox_image
from sandbox_image import programs
from sandbox_image.library_names import NAMES

CPU_SECONDS = 20
MEMORY_BYTES = 768 * 1024 * 1024
MAX_FINDINGS = 200

# The modules that a project may import. Analysing them is most of mypy's work, and the same for
# every project.
KNOWN = f"import {', '.join(NAMES)}, builtins, uac, uac.testing\n"


def main() -> None:
    """Serve requests, or prepare the cache."""
    cache, *mode = sys.argv[1:]
    if mode == ["--prepare"]:
        errors = check({"known.py": KNOWN}, cache)
        if errors:
            raise SystemExit(f"the library itself has type errors: {errors}")
        return
    programs.serve(lambda request: answer(request["files"], cache))


def answer(files: Mapping[str, str], cache: str) -> dict[str, Any]:
    """Return the type errors of a project, or which limit the check exceeded."""
    result = programs.answer_in_fork(
        lambda: {"findings": check(files, cache)[:MAX_FINDINGS]}, CPU_SECONDS, MEMORY_BYTES
    )
    return {"findings": [], **result}


def check(files: Mapping[str, str], cache: str) -> list[dict[str, Any]]:
    """Return the errors of mypy --strict: path, line, code and message of each."""
    options = _options(cache)
    sources = [BuildSource(path, _module(path), text) for path, text in sorted(files.items())]
    errors: list[dict[str, Any]] = []

    def collect(filename: str | None, messages: list[str], is_serious: bool) -> None:
        for message in messages:
            errors.extend(_finding(message, files))

    try:
        build(sources, options, flush_errors=collect)
    except CompileError as error:  # a file that cannot be parsed, or two modules of one name
        collect(None, error.messages, True)
    unique = {tuple(sorted(error.items())): error for error in errors}
    return sorted(unique.values(), key=lambda error: (error["path"], error["line"]))


def _options(cache: str) -> Options:
    # No configuration is searched for, and the search path contains no working directory.
    _, options = process_options(
        [
            "--strict",
            "--config-file=",
            "--no-site-packages",
            f"--cache-dir={cache}",
            "--no-sqlite-cache",
            "--no-native-parser",  # the native parser starts threads
            "--no-error-summary",
            "--no-color-output",
            "--no-pretty",
            "--hide-error-context",
            "--show-error-codes",
            "--show-traceback",
            "--command=pass",
        ]
    )
    options.mypy_path = [str(Path(sandbox_image.__path__[0]))]
    return options


def _module(path: str) -> str:
    bare = path.removesuffix(".pyi").removesuffix(".py").removesuffix("/__init__")
    return bare.replace("/", ".")


def _finding(line: str, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Parse a line of mypy's output; leave out notes, and errors in other files."""
    path, _, rest = line.partition(":")
    number, _, rest = rest.partition(":")
    kind, _, message = rest.strip().partition(": ")
    if kind != "error" or path not in files or not number.isdigit():
        return []
    text, _, code = message.rpartition("  [")
    parts = (text, code.removesuffix("]")) if text and code.endswith("]") else (message, "misc")
    return [{"path": path, "line": int(number), "code": parts[1], "message": parts[0].strip()}]


if __name__ == "__main__":
    main()
