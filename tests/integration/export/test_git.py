"""Real git clones, fetches, and tries to push; the result is a project that runs."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from rest_framework.test import APIClient

from memory.kernel.canonical import git_blob_id, sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.kernel.workspaces import create_key
from memory.privacy import redaction
from memory.versions import rollback
from memory.versions.models.checkpoints import Blob, Checkpoint
from tests.factories import make_checkpoint
from tests.integration.export.conftest import Run, assert_green, record, run_python

pytestmark = pytest.mark.usefixtures("live_database")

Clone = Callable[..., Path]

STORY = [
    "v1: adds Trip rome, adds Passport p-1, defines Trip, defines Passport",
    "v2: adds Trip oslo",
    "v3: changes Trip rome",
    "v4: writes the constraint overlap",
    "v5: retires Trip oslo",
]


@pytest.fixture
def url(base_url: str) -> str:
    """Return the address from which the person's project is cloned."""
    return f"{base_url}/v1/users/ada/git"


@pytest.fixture
def clone(url: str, git: Run, tmp_path: Path) -> Clone:
    """Clone the person's project, and return the folder."""

    def do(name: str = "ada", *options: str) -> Path:
        assert_success(git("clone", url, name, *options))
        return tmp_path / name

    return do


def assert_success(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def log(git: Run, folder: Path, form: str = "%s") -> list[str]:
    """Return one field of every commit, oldest first."""
    return git("log", "--reverse", f"--format={form}", cwd=folder).stdout.splitlines()


def test_clone_runs_and_its_log_tells_the_story(lived: MemoryUser, git: Run, clone: Clone) -> None:
    # When a person's project is cloned,
    ada = clone()
    # then its tests pass and its types are right with nothing but what is in it,
    assert_green(ada)
    assert git("status", "--porcelain", cwd=ada).stdout == ""
    # git finds nothing wrong with it,
    checked = git("fsck", "--strict", cwd=ada)
    assert (checked.returncode, checked.stderr) == (0, "")
    # the log tells what changed and why, by whom and when,
    assert log(git, ada) == STORY
    body = git("show", "-s", "--format=%an %aI%n%b", "v5", cwd=ada).stdout
    made_at = Checkpoint.objects.get(user=lived, version=5).created_at
    assert f"uac {made_at:%Y-%m-%dT%H:%M:%S}" in body
    assert "Origin: typed records\nEntries: 5\n" in body
    assert "- retires Trip oslo in travel.trips (entry 5)" in body
    # and a version is its tag, with the files of that version and no other.
    assert git("tag", cwd=ada).stdout.split() == ["v1", "v2", "v3", "v4", "v5"]
    assert git("branch", "--show-current", cwd=ada).stdout == "main\n"
    for version in Checkpoint.objects.filter(user=lived):
        listed = git("ls-tree", "-r", "--name-only", f"v{version.version}", cwd=ada).stdout.split()
        assert set(version.tree) <= set(listed)
        assert ("tests/test_overlap.py" in listed) == (version.version >= 4)
        state = git("show", f"v{version.version}:domains/travel/state.py", cwd=ada).stdout
        assert ("Oslo" in state) == (version.version in (2, 3, 4))


def test_references_and_constraints_work_in_a_clone(
    lived: MemoryUser, clone: Clone, api: APIClient, work: Any
) -> None:
    # Given a record that refers to one of another domain,
    edits = [
        {
            "op": "define_class",
            "domain": "health",
            "name": "Visit",
            "fields": [{"name": "passport", "type": "Ref[travel.Passport]"}],
        },
        {
            "op": "add",
            "domain": "health",
            "class_name": "Visit",
            "key": "v",
            "fields": {"passport": "p-1"},
            "sources": [1],
        },
    ]
    assert api.post("/v1/users/ada/checkpoints/?wait=0", {"edits": edits}).status_code == 202
    work()
    # when the project is cloned and asked with nothing but Python,
    asked = run_python(
        clone(),
        "-c",
        "import datetime\n"
        "from constraints import overlap\n"
        "from domains.health.state import visits\n"
        "print(visits[0].passport.get().number)\n"
        "print([alert.message for alert in overlap.check(datetime.date(2026, 1, 1))])\n",
    )
    # then it answers.
    assert (asked.stdout, asked.stderr) == ("X1\n[]\n", "")


def test_the_same_history_has_the_same_ids_and_grows_at_its_end(
    lived: MemoryUser, git: Run, clone: Clone, say: Callable[..., None]
) -> None:
    # Given two clones,
    one, two = clone("one"), clone("two", "-c", "protocol.version=0")
    assert log(git, one, "%H") == log(git, two, "%H")
    # when more is learned and the first pulls,
    say(record("Trip", "bonn", to="Bonn", on="2026-03-01", cost=90))
    before = log(git, one, "%H")
    assert_success(git("pull", "--ff-only", cwd=one))
    # then it gets what is new, and its past is as it was.
    assert log(git, one, "%H")[:5] == before
    assert log(git, one)[5:] == ["v6: adds Trip bonn"]
    assert git("fsck", "--strict", cwd=one).returncode == 0
    assert "up to date" in git("pull", cwd=one).stdout
    # The other clone has not changed, and pulls a tag separately.
    assert_success(git("fetch", "origin", "tag", "v6", cwd=two))
    assert git("rev-parse", "v6", cwd=two).stdout == git("rev-parse", "main", cwd=one).stdout


@pytest.mark.parametrize("protocol", ["0", "2"])
def test_a_shallow_clone_begins_late_and_can_be_deepened(
    lived: MemoryUser,
    url: str,
    git: Run,
    tmp_path: Path,
    protocol: str,
    say: Callable[..., None],
) -> None:
    # When only the newest version is cloned,
    assert_success(git("-c", f"protocol.version={protocol}", "clone", "--depth=1", url, "ada"))
    ada = tmp_path / "ada"
    assert log(git, ada) == STORY[4:]
    assert (ada / "domains/travel/state.py").is_file()

    # then it can be deepened,
    assert git("fetch", "--depth=3", cwd=ada).returncode == 0
    assert log(git, ada) == STORY[2:]
    # pulls what is new,
    say(record("Trip", "bonn", to="Bonn", on="2026-03-01", cost=90))
    assert_success(git("pull", "--ff-only", cwd=ada))
    assert log(git, ada) == [*STORY[2:], "v6: adds Trip bonn"]
    # and becomes whole.
    assert_success(git("fetch", "--unshallow", "--tags", cwd=ada))
    assert log(git, ada) == [*STORY, "v6: adds Trip bonn"]
    assert git("fsck", "--strict", cwd=ada).returncode == 0


def test_version_can_be_cloned_by_its_tag(
    lived: MemoryUser, url: str, git: Run, tmp_path: Path
) -> None:
    assert_success(git("clone", "--depth=1", "--branch=v3", url, "ada"))
    assert log(git, tmp_path / "ada") == STORY[2:3]
    # Older and newer versions come later.
    assert git("fetch", "--depth=1", "origin", "tag", "v1", cwd=tmp_path / "ada").returncode == 0
    assert git("fetch", "origin", "tag", "v5", cwd=tmp_path / "ada").returncode == 0
    assert git("show", "v1:domains/travel/state.py", cwd=tmp_path / "ada").returncode == 0
    assert git("show", "v5:domains/travel/state.py", cwd=tmp_path / "ada").returncode == 0


def test_restored_version_is_its_own_commit(lived: MemoryUser, git: Run, clone: Clone) -> None:
    rollback.restore(lived, 2, reopen=False, by="key:x", reason="It was\x1b[31m wrong.")
    ada = clone()
    assert log(git, ada)[-1] == "v6: rolls back to v2"
    trees = log(git, ada, "%T")
    assert trees[5] == trees[1]
    # Users' texts must not control a terminal.
    shown = git("show", "-s", "v6", cwd=ada).stdout
    assert "It was\\u001b[31m wrong." in shown
    assert "\x1b" not in shown


def test_a_push_is_refused_with_a_reason(lived: MemoryUser, git: Run, clone: Clone) -> None:
    ada = clone()
    (ada / "manifest.py").write_text("")
    git("-c", "user.name=x", "-c", "user.email=x", "commit", "-am", "mine", cwd=ada)
    pushed = git("push", cwd=ada)
    assert pushed.returncode != 0
    assert "403" in pushed.stderr
    assert "This repository is read-only." in pushed.stderr
    lived.refresh_from_db()
    assert lived.head is not None
    assert lived.head.version == 5


def test_clone_without_a_key_of_the_workspace_is_refused(
    lived: MemoryUser, url: str, git: Run, tmp_path: Path
) -> None:
    other = create_key(Workspace.objects.create(name="other"), "other")[1]
    for wrong, said in ((other, "no such user"), ("uac_00_x", "could not read Username")):
        refused = git("clone", url, "ada", key=wrong)
        assert refused.returncode != 0
        assert not (tmp_path / "ada").exists()
        assert said in refused.stderr
    # A key that may write but not read is refused here, too.
    writer = create_key(lived.workspace, "w", [Scope.WRITE])[1]
    assert "403" in git("clone", url, "ada", key=writer).stderr


def test_an_id_may_need_to_be_encoded(workspace: Workspace, base_url: str, git: Run) -> None:
    odd = create_user(workspace, "auth0|7@x.org+1:b", time_zone="UTC", metadata=None)
    make_checkpoint(odd)
    for written in ("auth0%7C7%40x.org%2B1%3Ab", "auth0%7c7@x.org+1:b"):
        assert_success(git("clone", f"{base_url}/v1/users/{written}/git", written[-9:]))
    slashed = create_user(workspace, "https://idp.example.com/山田 太郎", metadata=None)
    make_checkpoint(slashed)
    written = quote(slashed.user_id, safe="")
    assert_success(git("clone", f"{base_url}/v1/users/{written}/git", "slashed"))
    assert git("clone", f"{base_url}/v1/users/a%2Fb/git", "none").returncode != 0


def test_user_without_versions_has_empty_repository(user: MemoryUser, url: str, git: Run) -> None:
    cloned = git("clone", url, "ada")
    assert cloned.returncode == 0, cloned.stderr
    assert "empty repository" in cloned.stderr


def test_redacted_content_is_not_in_a_clone(
    lived: MemoryUser, url: str, git: Run, clone: Clone, work: Callable[[], None]
) -> None:
    before = clone("before")
    # Given an entry that was redacted, on which some versions rest,
    redaction.redact(lived, [3], by="key:test", reason="A mistake.")
    # while that is being done there is nothing to clone,
    waiting = git("clone", url, "ada")
    assert "503" in waiting.stderr
    assert "redaction" in waiting.stderr
    # and afterwards it is all there but for what rested on it.
    work()
    ada = clone()
    checked = git("fsck", "--strict", cwd=ada)
    assert (checked.returncode, checked.stderr) == (0, "")
    for version, there in (("v1", True), ("v2", False), ("main", True)):
        shown = git("show", f"{version}:domains/travel/state.py", cwd=ada)
        assert (shown.returncode == 0) == there, version
        assert git("show", f"{version}:domains/travel/schema.py", cwd=ada).returncode == 0
    assert "oslo" in git("log", "-p", "--all", cwd=before).stdout.lower()
    assert "oslo" not in git("log", "-p", "--all", cwd=ada).stdout.lower()
    told = git("show", "-s", "v2", cwd=ada).stdout
    assert re.search(r"Redacted later.*\n\s+- domains/travel/state.py", told)
    assert_green(ada)
    # Earlier clones get the new history.
    assert_success(git("fetch", cwd=before))
    main = git("rev-parse", "origin/main", cwd=before).stdout
    assert main == git("rev-parse", "main", cwd=ada).stdout


def test_a_long_history_is_sent_as_what_differs(user: MemoryUser, git: Run, clone: Clone) -> None:
    # Given many versions of a file that grows, and shrinks,
    texts, body = [], ""
    for number in range(300):
        body += f"    {number}: {'x' * 50} {number * number}\n"
        texts.append(body if number % 7 else body[1000:])
    Blob.objects.bulk_create(
        [
            Blob(user=user, hash=sha256(text), content=text, git_id=git_blob_id(text.encode()))
            for text in texts
        ],
        ignore_conflicts=True,
    )
    for version, text in enumerate(texts, start=1):
        user.head = make_checkpoint(user, version, tree={"manifest.py": sha256(text)})
    user.save()
    # when it is cloned,
    ada = clone()
    # then every version is as it was, and little was sent.
    assert git("fsck", "--strict", cwd=ada).returncode == 0
    for version in (1, 2, 7, 8, 250, 300):
        shown = git("show", f"v{version}:manifest.py", cwd=ada).stdout
        assert shown == texts[version - 1]
    (pack,) = (ada / ".git/objects/pack").glob("*.pack")
    assert pack.stat().st_size < sum(map(len, texts)) / 10
