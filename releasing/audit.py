"""Look up the known vulnerabilities of all packages in the lock files.

    python -m releasing.audit requirements.lock …

Exit status: 0 if no vulnerability is known; 1 if one is; 3 if some or all packages could not be
looked up. By itself, pip-audit reports packages that it could not look up as free of
vulnerabilities.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOUND, NOT_LOOKED = 1, 3


@dataclass(frozen=True)
class Verdict:
    """The exit status and the message of an audit."""

    status: int
    told: str


def judge(report: Mapping[str, Any] | None, error: str = "") -> Verdict:
    """Judge pip-audit's JSON report, which is None if `error` kept pip-audit from making one."""
    packages: Sequence[Mapping[str, Any]] = (report or {}).get("dependencies", ())
    found = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in {flaw['fix_versions']}"
        for one in packages
        for flaw in one.get("vulns", ())
    ]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    if found:
        return Verdict(FOUND, "\n".join(["VULNERABLE:", *found]))
    if not packages or skipped:
        which = f"{len(skipped)} of {len(packages)} packages" if packages else "all packages"
        reason = error or f"the advisory service does not know {', '.join(skipped[:3])}, …"
        return Verdict(
            NOT_LOOKED,
            f"!!! NOT CHECKED for known vulnerabilities: {which} ({reason}).\n"
            "!!! Run `make security` where pip-audit can reach its advisory service.",
        )
    return Verdict(0, f"no known vulnerabilities in {len(packages)} packages")


def audit(locks: Sequence[str]) -> Verdict:
    """Run pip-audit on all packages in these lock files."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--progress-spinner=off"]
        command += ["--timeout=20", "--format=json", f"--output={told}"]
        ended = subprocess.run(
            [*command, *(f"--requirement={lock}" for lock in locks)],
            capture_output=True,
            text=True,
            check=False,
        )
        text = told.read_text() if told.exists() else ""
    last = ended.stderr.strip().splitlines()[-1:]
    return judge(json.loads(text) if text else None, "".join(last)[:200] if not text else "")


if __name__ == "__main__":
    verdict = audit(sys.argv[1:])
    sys.stdout.write(f"{verdict.told}\n")
    sys.exit(verdict.status)
