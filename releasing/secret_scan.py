"""Look for secrets in the committed files.

    python -m releasing.secret_scan [--renew]

Every finding must be in `.secrets.baseline`, marked "is_secret": false by a person who has reviewed
it. `--renew` adds new findings without a verdict, and removes those that are gone.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from detect_secrets.core import baseline
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import transient_settings
from dulwich.errors import NotGitRepository
from dulwich.repo import Repo

BASELINE = Path(".secrets.baseline")
# Names of generated files and folders, which are never committed.
MADE = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "dist"}
MADE |= {"__pycache__", ".demo", "staticfiles", ".import_linter_cache"}


def committed(root: Path = Path()) -> list[str]:
    """Return the committed files, without the baseline itself.

    If there is no repository, these are all files except generated ones.
    """
    try:
        with Repo(str(root)) as repository:
            names = [os.fsdecode(name) for name in repository.open_index()]
    except NotGitRepository:
        names = [
            str(one.relative_to(root))
            for one in root.rglob("*")
            if not MADE & set(one.relative_to(root).parts)
        ]
    return [name for name in sorted(names) if name != BASELINE.name and (root / name).is_file()]


def scan(files: Sequence[str], known: Path = BASELINE) -> tuple[SecretsCollection, list[str]]:
    """Scan files with the baseline's settings; return the findings and the problems with them."""
    before = baseline.load(baseline.load_from_file(str(known)))
    with transient_settings(json.loads(known.read_text())):
        found = SecretsCollection()
        if files:  # without any, it would start processes that may never end
            found.scan_files(*files)
    judged = {(name, secret.secret_hash, secret.type): secret for name, secret in before}
    there = {(name, secret.secret_hash, secret.type): secret for name, secret in found}
    for key, secret in there.items():
        secret.is_secret = judged[key].is_secret if key in judged else None
    problems = [
        f"{name}:{secret.line_number}: {kind}: review it (docs/releasing.md)"
        for (name, _, kind), secret in there.items()
        if secret.is_secret is not False
    ]
    problems += [
        f"{name}: {kind}: no longer in the file"
        for name, value, kind in judged.keys() - there.keys()
    ]
    return found, sorted(problems)


def main() -> int:
    """Scan from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--renew", action="store_true")
    options = parser.parse_args()
    found, problems = scan(committed())
    if options.renew:
        told = {**json.loads(BASELINE.read_text()), "results": found.json()}
        BASELINE.write_text(json.dumps(told, indent=2) + "\n")
    sys.stdout.write("\n".join([*problems, f"findings to review: {len(problems)}\n"]))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
