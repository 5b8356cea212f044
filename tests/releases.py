"""The releases before this commit, which are its tags."""

import subprocess
from pathlib import Path


def find_previous_release(checkout: Path) -> str | None:
    """Return the tag of the newest release that the checkout's commit comes after, if any.

    Raises ValueError if the checkout is shallow: it may lack tags that the repository has.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        raise ValueError("this is a shallow clone, which may lack tags: git fetch --unshallow")
    older = ("tag", "--merged=HEAD", "--no-contains=HEAD")
    tags = git(*older, "--sort=-version:refname", "--list", "v*").split()
    return tags[0] if tags else None
