"""Carries the entries of an export into the log of a user, and verifies that they are there."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from userascode._sync.user import User
from userascode.errors import UserAsCodeError
from userascode.imports.formats import Item, Skipped
from userascode.models import Appended
from userascode.problems import ContentRefused

if TYPE_CHECKING:
    from userascode.params import NewTextEntry

# Limits of a request: entries, and characters.
BATCH = 200
BATCH_CHARACTERS = 250_000
MAX_CONTENT = 1_000_000
# Entries that are read at a time; each may be as large as a request.
PAGE = 100
# For estimates: characters of a token, entries that a model reads together (UAC_STRUCTURE_ENTRIES),
# and the tokens that it reads and writes beside them (benchmarks/capacity.toml).
CHARACTERS_PER_TOKEN = 4
ENTRIES_PER_WORK = 20
READ_PER_WORK, WRITTEN_PER_WORK = 17_500, 1_200


class NothingToImport(UserAsCodeError):
    """An export has no entry that could be taken over."""


class NotVerified(UserAsCodeError):
    """Entries that were imported are not in the log as they were sent."""


@dataclass
class Report:
    """What an import found and did. `skipped` counts the parts that were not taken over."""

    kinds: Counter[str] = field(default_factory=Counter)
    sessions: set[str] = field(default_factory=set)
    characters: int = 0
    first: str = ""
    last: str = ""
    skipped: Counter[str] = field(default_factory=Counter)
    added: int = 0
    known: int = 0
    verified: int = 0

    @property
    def entries(self) -> int:
        """The number of entries in the export."""
        return sum(self.kinds.values())

    @property
    def tokens(self) -> tuple[int, int]:
        """About how many tokens a language model will read and write for the entries."""
        works = math.ceil(self.entries / ENTRIES_PER_WORK)
        read = works * READ_PER_WORK + self.characters // CHARACTERS_PER_TOKEN
        return read, works * WRITTEN_PER_WORK

    def count(self, items: Iterable[Item]) -> Iterator["NewTextEntry"]:
        """Yield the entries, and count them and everything else."""
        for item in items:
            if isinstance(item, Skipped):
                self.skipped[item.part] += 1
            elif not item["content"]:
                self.skipped["empty messages"] += 1
            elif len(item["content"]) > MAX_CONTENT:
                self.skipped["messages of more than a million characters"] += 1
            else:
                self._count_entry(item)
                yield item
        if not self.entries:
            parts = ", ".join(f"{number} {part}" for part, number in self.skipped.items())
            raise NothingToImport(
                f"There is nothing to import ({parts or 'the file is empty'}). It can be an export"
                " of ChatGPT, Claude, mem0, Zep, Graphiti, Letta or LangMem: docs/imports.md."
            )

    def _count_entry(self, entry: "NewTextEntry") -> None:
        self.kinds[entry.get("role") or entry["kind"]] += 1
        self.characters += len(entry["content"])
        if session := entry.get("session_id"):
            self.sessions.add(session)
        if at := entry.get("occurred_at"):
            self.first = min(self.first or at, at)
            self.last = max(self.last, at)


def import_items(user: User, items: Iterable[Item]) -> Iterator[Report]:
    """Append the entries of an export; yield the report after each request, and at the end.

    What the workspace's content policy refuses is left out. An import that was interrupted is
    repeated: what is there already is not added again, and what was redacted since is left out. At
    the end, all entries are read from the log and compared.
    Raises NothingToImport or NotVerified.
    """
    report = Report()
    expected: dict[str, bytes] = {}
    newest = user.details().entries.total
    for batch in _batches(report.count(items)):
        accepted, appended = _add(user, batch, report)
        masked = {one.seq for one in appended.masked} if appended else set()
        report.skipped.update({"secrets or personal data, masked": len(masked)} if masked else {})
        for entry, logged in zip(accepted, appended.entries if appended else [], strict=True):
            key = entry["idempotency_key"]
            if logged.redacted_at is not None:
                report.skipped["redacted entries"] += 1
            elif key not in expected:
                content = logged.content if logged.seq in masked else entry["content"]
                expected[key] = _digest(content)
                report.added += logged.seq > newest
                report.known += logged.seq <= newest
        yield report
    for logged in user.entries.list(page_size=PAGE):
        key = logged.idempotency_key or ""
        if key in expected and expected[key] == _digest(logged.content):
            del expected[key]
            report.verified += 1
    if expected:
        raise NotVerified(f"{len(expected)} entries are not in the log as they were sent.")
    yield report


def _add(
    user: User, batch: list["NewTextEntry"], report: Report
) -> tuple[list["NewTextEntry"], Appended | None]:
    """Append the entries that the content policy allows; return them, and the answer if any."""
    try:
        return batch, user.add(*batch)
    except ContentRefused as problem:
        errors = problem.answer.errors or {}
        refused = {int(index) for index in errors["entries"]} if len(batch) > 1 else {0}
        report.skipped["entries with secrets or personal data, refused"] += len(refused)
        rest = [entry for index, entry in enumerate(batch) if index not in refused]
    return _add(user, rest, report) if rest else ([], None)


def _batches(entries: Iterable["NewTextEntry"]) -> Iterator[list["NewTextEntry"]]:
    batch: list[NewTextEntry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == BATCH or size + len(entry["content"]) > BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry["content"])
    if batch:
        yield batch


def _digest(content: Any) -> bytes:
    return hashlib.sha256(str(content).encode()).digest()[:8]
