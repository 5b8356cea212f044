"""The data directory: its location, permissions and contents."""

import fcntl
import hashlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deploy.embedded.process import service_user

# Only root uses this directory, and only root can write to it, so no other user can plant anything
# in it.
_FALLBACK = Path("/var/lib/uac-embedded")
_EARLIER_RUN_SECONDS = 30


class AlreadyRunning(RuntimeError):
    """Another supervisor is using the data directory."""


def usable_folder(chosen: Path) -> Path:
    """Create and return the directory to store data in: `chosen`, or a fixed substitute.

    The substitute is used if this process runs as root and `chosen` is somewhere the services'
    unprivileged user can't access (say, under /root). It depends only on the path of `chosen`, so
    that a later run finds the same data.
    """
    chosen = chosen.resolve()
    user = service_user()
    if user is None:
        chosen.mkdir(parents=True, exist_ok=True)
        return chosen
    if not _can_enter(user, _nearest_existing(chosen)):
        chosen = _FALLBACK / hashlib.sha256(bytes(chosen)).hexdigest()[:16]
    _make_enterable(chosen)
    return chosen


def remove_folder(chosen: Path) -> None:
    """Remove a data directory and, if it has one, its substitute.

    Raises AlreadyRunning if a server is using the directory.
    """
    folder = usable_folder(chosen)
    with claimed(folder):
        shutil.rmtree(folder)
    shutil.rmtree(chosen, ignore_errors=True)


def service_folder(parent: Path, name: str) -> Path:
    """Create and return a directory in `parent` that only the services' user can access."""
    folder = parent / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    give_to_service_user(folder)
    return folder


def give_to_service_user(path: Path) -> None:
    """Make the services' user the owner of `path`, if there is such a user."""
    user = service_user()
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def reachable_program(program: Path, tree: Path) -> Path:
    """Return `program`, or a copy of it if the services' user can't run it where it is.

    `tree` is the directory that contains the program and everything it needs; the whole directory
    is copied.
    """
    user = service_user()
    if user is None or _can_enter(user, program.parent):
        return program
    _make_enterable(_FALLBACK)
    # Name the copy after the program's contents, so that all checkouts share the copy.
    identity = hashlib.sha256(program.read_bytes()).hexdigest()[:16]
    copy = _FALLBACK / f"{tree.name}-{identity}"
    if not copy.exists():
        unfinished = Path(tempfile.mkdtemp(dir=_FALLBACK))
        shutil.copytree(tree, unfinished, dirs_exist_ok=True, symlinks=True)
        unfinished.chmod(0o755)
        with suppress(OSError):  # another process may have finished making the same copy first
            unfinished.rename(copy)
        shutil.rmtree(unfinished, ignore_errors=True)
    return copy / program.relative_to(tree)


def new_secret() -> str:
    """Return a random string that is safe in URLs and configuration files."""
    return secrets.token_urlsafe(48)


def kept(folder: Path, name: str, make: Callable[[], str] = new_secret) -> str:
    """Return the value named `name`, which is created once and stored in `folder` (mode 600)."""
    path = folder / "kept" / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as out:
            out.write(make())
        unfinished.rename(path)
    return path.read_text()


@contextmanager
def claimed(folder: Path) -> Iterator[int]:
    """Claim `folder` for this process; yield a descriptor that its children must inherit.

    Raises AlreadyRunning immediately if another supervisor has claimed the directory. If a
    supervisor was killed, its children may still be shutting down; they hold the second lock. This
    function waits for them and raises AlreadyRunning if they take too long.
    """
    with (
        (folder / "supervisor.lock").open("a+") as ours,
        (folder / "children.lock").open("a") as theirs,
    ):
        if not _try_lock(ours.fileno()):
            ours.seek(0)
            raise AlreadyRunning(
                f"{folder} is in use by another supervisor (process {ours.read().strip()}). "
                "Stop that one first."
            )
        ours.truncate(0)
        ours.write(str(os.getpid()))
        ours.flush()
        deadline = time.monotonic() + _EARLIER_RUN_SECONDS
        while not _try_lock(theirs.fileno()):
            if time.monotonic() > deadline:
                raise AlreadyRunning(
                    f"processes from an earlier run are still using {folder} after "
                    f"{_EARLIER_RUN_SECONDS} s; end them (fuser {theirs.name} lists them)"
                )
            time.sleep(0.1)
        yield theirs.fileno()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_enterable(path: Path) -> None:
    """Create `path` and its missing parents, which other users can enter but not list."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o711)


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _can_enter(user: str, folder: Path) -> bool:
    """Find out whether the user can enter the directory by trying: mode bits aren't conclusive."""
    attempt = subprocess.run(  # noqa: S603  # nosec B603 # our own program
        ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)],
        user=user,
        group=pwd.getpwnam(user).pw_gid,
        extra_groups=[],
        cwd="/",
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return attempt.returncode == 0
