"""A user's project as a git repository with linear history: one commit per version.

The repository is not stored. Object ids are computed from the versions, so all servers that run the
same release compute the same ids, and packs are built from the files in the database. Since the
history is linear, a client that has one version lacks only later versions, so there is no graph to
walk.
"""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet
from dulwich.objects import Commit, ObjectID, Tree
from dulwich.pack import REF_DELTA, UnpackedObject

from memory.export.deltas import delta
from memory.export.files import surroundings
from memory.export.story import Event, message
from memory.kernel.canonical import git_blob_id
from memory.kernel.models.users import MemoryUser
from memory.project import Outline
from memory.versions.models.checkpoints import Blob, Checkpoint

AUTHOR = b"uac <uac@localhost>"
COMMIT, TREE, BLOB = 1, 2, 3  # git's object type numbers
# Maximum length of a delta chain, in which each version of a file is stored as a delta against the
# next newer version.
MAX_DELTAS = 50
CHUNK = 100


class HistoryChanged(Exception):
    """Content that was about to be sent has just been redacted."""


@dataclass(frozen=True)
class History:
    """The git history of a user's project: versions and their commits, oldest first."""

    user: MemoryUser
    names: Mapping[str, str]
    versions: Sequence[int]
    commits: Sequence[Commit]
    index: Mapping[ObjectID, int] = field(init=False)

    def __post_init__(self) -> None:
        index = {commit.id: number for number, commit in enumerate(self.commits)}
        object.__setattr__(self, "index", index)

    def refs(self) -> list[tuple[bytes, ObjectID]]:
        """Return the repository's refs: HEAD, the branch `main`, and a tag for each version."""
        if not self.commits:
            return []
        head = self.commits[-1].id
        tags = {
            b"refs/tags/v%d" % version: commit.id
            for version, commit in zip(self.versions, self.commits, strict=True)
        }
        return [(b"HEAD", head), (b"refs/heads/main", head), *sorted(tags.items())]


def history_of(user: MemoryUser) -> History:
    """Return the project's history up to the head; this reads every version's tree and edits."""
    names = _names(user)
    versions: list[int] = []
    commits: list[Commit] = []
    classes = _classes(user)
    rows = _rows(user).values(
        "version", "tree", "origin", "seen_seq", "created_at", "edits", "verdict__restored"
    )
    for row, folder, redacted in _folders(rows.iterator(chunk_size=CHUNK), names):
        event = Event(
            version=row["version"],
            origin=row["origin"],
            seen_seq=row["seen_seq"],
            created_at=row["created_at"],
            edits=row["edits"] or (),
            restored=row["verdict__restored"],
        )
        text = message(event, classes, redacted)
        parents = [commits[-1].id] if commits else []
        commits.append(_commit(folder.write({}), parents, event.created_at, text))
        versions.append(event.version)
    return History(user, names, versions, commits)


def _rows(user: MemoryUser) -> QuerySet[Checkpoint]:
    return Checkpoint.objects.filter(user=user).order_by("version")


def _names(user: MemoryUser) -> dict[str, str]:
    """Map the hash of each of the user's file contents to its git id.

    Redacted content is left out, and therefore not exported.
    """
    blobs = Blob.objects.filter(content__isnull=False, user=user)
    return dict(blobs.values_list("hash", "git_id"))


def _classes(user: MemoryUser) -> dict[tuple[str, str], str]:
    """Map each collection and singleton of the head, as (domain, name), to its class."""
    if user.head is None:
        return {}
    classes: dict[tuple[str, str], str] = {}
    for domain in Outline.from_json(user.head.outline).domains.values():
        classes |= {(domain.name, one.name): one.class_name for one in domain.collections.values()}
        classes |= {(domain.name, one.name): one.class_name for one in domain.singletons.values()}
    return classes


def _commit(tree: str, parents: list[ObjectID], moment: datetime.datetime, text: str) -> Commit:
    commit = Commit()
    commit.tree = ObjectID(tree.encode())
    commit.parents = parents
    commit.author = commit.committer = AUTHOR
    commit.author_time = commit.commit_time = int(moment.timestamp())
    commit.author_timezone = commit.commit_timezone = 0
    commit.message = text.encode(errors="replace")
    return commit


# -- Git trees ---------------------------------------------------------------------------------


class Folder:
    """A directory across successive versions; unchanged subdirectories are not rewritten."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, Folder] = {}
        self._id: str | None = None

    def put(self, path: str, id_: str | None) -> None:
        """Set the id of the file at this path, or remove the file if the id is None."""
        self._id = None
        name, _, rest = path.partition("/")
        if rest:
            folder = self._folders.setdefault(name, Folder())
            folder.put(rest, id_)
            if not folder._files and not folder._folders:
                del self._folders[name]
        elif id_ is None:
            self._files.pop(name, None)
        else:
            self._files[name] = id_

    def write(self, into: dict[str, bytes]) -> str:
        """Add a tree for each directory changed since the last call; return this directory's id."""
        if self._id is None:
            tree = Tree()
            for name, id_ in self._files.items():
                tree.add(name.encode(), 0o100644, ObjectID(id_.encode()))
            for name, folder in self._folders.items():
                tree.add(name.encode(), 0o40000, ObjectID(folder.write(into).encode()))
            self._id = tree.id.decode()
            into[self._id] = tree.as_raw_string()
        return self._id


def _folders(
    rows: Iterable[Mapping[str, Any]], names: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, Any], Folder, list[str]]]:
    """Yield each version with its root directory, and the paths of its redacted files."""
    folder = Folder()
    for path, content in surroundings().items():
        folder.put(path, git_blob_id(content))
    before: dict[str, str] = {}
    for row in rows:
        tree = row["tree"]
        after = {path: names[hash_] for path, hash_ in tree.items() if hash_ in names}
        for path, id_ in after.items() - before.items():
            folder.put(path, id_)
        for path in before.keys() - after.keys():
            folder.put(path, None)
        yield row, folder, sorted(tree.keys() - after.keys())
        before = after


# -- Git packs ---------------------------------------------------------------------------------


@dataclass
class Parcel:
    """The objects that a client lacks: commits, trees, and file contents.

    `files` maps each path to the git ids and hashes of its contents, oldest first.
    """

    commits: list[Commit]
    trees: dict[str, bytes]
    files: dict[str, list[tuple[str, str]]]
    count: int


def parcel(history: History, send: Sequence[int], base: int | None) -> Parcel:
    """Return all objects in the versions at these positions in the history.

    Objects that also belong to the version at position `base`, which the receiver has, are left
    out.
    """
    result = Parcel([history.commits[number] for number in send], {}, {}, 0)
    seen: set[str] = set()
    versions = [history.versions[number] for number in send]
    if base is not None:
        versions.append(history.versions[base])
    rows = _rows(history.user).filter(version__in=versions).values("version", "tree")
    by_id = {git_blob_id(content): "" for content in surroundings().values()}
    if base is not None:
        ((row, folder, _),) = _folders(rows.filter(version=history.versions[base]), history.names)
        had: dict[str, bytes] = {}
        folder.write(had)
        seen = {*had, *by_id, *(history.names.get(hash_, "") for hash_ in row["tree"].values())}
        rows = rows.exclude(version=history.versions[base])
    result.files[""] = [(id_, "") for id_ in by_id if id_ not in seen]
    seen |= by_id.keys()
    for row, folder, _ in _folders(rows.iterator(chunk_size=CHUNK), history.names):
        folder.write(result.trees)
        for path, hash_ in row["tree"].items():
            id_ = history.names.get(hash_)
            if id_ is not None and id_ not in seen:
                seen.add(id_)
                result.files.setdefault(path, []).append((id_, hash_))
    for id_ in seen & result.trees.keys():
        del result.trees[id_]
    files = sum(map(len, result.files.values()))
    result.count = len(result.commits) + len(result.trees) + files
    return result


def objects(history: History, parcel: Parcel) -> Iterator[UnpackedObject]:
    """Yield a parcel's objects, file contents last.

    Raises HistoryChanged if any of the file contents have been redacted in the meantime.
    """
    for commit in parcel.commits:
        yield _object(COMMIT, commit.id.decode(), commit.as_raw_string())
    for id_, content in parcel.trees.items():
        yield _object(TREE, id_, content)
    contents = {git_blob_id(content): content for content in surroundings().values()}
    for id_, _ in parcel.files[""]:
        yield _object(BLOB, id_, contents[id_])
    for path, files in parcel.files.items():
        if path:
            yield from _file_objects(history.user, files[::-1])


def _file_objects(user: MemoryUser, files: Sequence[tuple[str, str]]) -> Iterator[UnpackedObject]:
    """Yield a file's contents, newest first: the newest in full, most others as deltas."""
    newer: tuple[str, bytes] | None = None
    deltas = 0
    for start in range(0, len(files), CHUNK):
        chunk = files[start : start + CHUNK]
        blobs = Blob.objects.filter(user=user, hash__in=[hash_ for _, hash_ in chunk])
        contents = dict(blobs.values_list("hash", "content"))
        for id_, hash_ in chunk:
            content = (contents.get(hash_) or "").encode()
            if git_blob_id(content) != id_:
                raise HistoryChanged
            change = delta(newer[1], content) if newer and deltas < MAX_DELTAS else None
            if newer is not None and change is not None and len(change) < len(content) / 2:
                yield _object(REF_DELTA, id_, change, base=newer[0])
                deltas += 1
            else:
                yield _object(BLOB, id_, content)
                deltas = 0
            newer = id_, content


def _object(kind: int, id_: str, content: bytes, base: str | None = None) -> UnpackedObject:
    return UnpackedObject(
        kind,
        delta_base=bytes.fromhex(base) if base else None,
        decomp_chunks=[content],
        sha=bytes.fromhex(id_),
    )
