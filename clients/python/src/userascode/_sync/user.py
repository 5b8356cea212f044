"""What a server remembers of one user.

Generated from `_async/user.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from userascode import entries, models, params
from userascode._sync.alerts import Alerts
from userascode._sync.transport import Pages, Transport
from userascode.protocol import ask, named, path, read, write
from userascode.pull import module_of


class User:
    """A user of your product, under the id that your product uses. Creating this asks nothing."""

    def __init__(self, transport: Transport, user_id: str) -> None:
        self.user_id = user_id
        self._transport = transport
        self._path = path("users", user_id)
        self.alerts = Alerts(transport, self._path)
        self.checkpoints = Checkpoints(transport, self._path)
        self.constraints = Constraints(transport, self._path)
        self.documents = Documents(transport, self._path)
        self.entries = Entries(transport, self._path)

    def details(self) -> models.UserDetail:
        """Return the user, with how far its entries are processed."""
        return self._transport.fetch(read(self._path), models.UserDetail)

    def change(
        self,
        *,
        time_zone: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        if_match: str | None = None,
    ) -> models.UserDetail:
        """Change the user's time zone or metadata."""
        body = {"time_zone": time_zone, "metadata": metadata}
        request = write("PATCH", self._path, body, if_match=if_match)
        return self._transport.fetch(request, models.UserDetail)

    def erase(
        self,
        reason: str,
        *,
        if_match: str | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Erasure:
        """Delete everything about the user; return the tombstone."""
        request = write("DELETE", self._path, if_match=if_match, reason=reason)
        return self._transport.settle(request, models.Erasure, wait=wait, timeout=timeout)

    def merge(
        self, from_user: str, *, wait: bool = True, timeout: float | None = None
    ) -> models.Merge:
        """Merge another user, who is the same person, into this one."""
        request = write("POST", f"{self._path}merge/", {"from": from_user})
        return self._transport.settle(request, models.Merge, wait=wait, timeout=timeout)

    def merged(self) -> models.Merge:
        """Return how far this user's merge into another one is."""
        return self._transport.fetch(read(f"{self._path}merge/"), models.Merge)

    def add(self, *new: params.NewEntry | str, wait: float | None = None) -> models.Appended:
        """Append entries to the user's log; a text is a message of the user.

        With `wait`, typed entries are settled on return, unless that takes more seconds.
        """
        body = {"entries": [entries.message(one) if isinstance(one, str) else one for one in new]}
        request = write("POST", f"{self._path}entries/", body, wait=wait)
        return self._transport.fetch(request, models.Appended)

    def query(
        self,
        code: str,
        *,
        as_of: str | int | None = None,
        by: params.ByEnum | None = None,
        at: str | None = None,
        timeout: float | None = None,
    ) -> models.Answer:
        """Run Python on the user's records; return its value with the evidence for it."""
        body = {"code": code, "as_of": as_of, "by": by, "at": at}
        request = write("POST", f"{self._path}query/", body)
        return self._transport.finish(request, models.Answer, timeout)

    def ask(
        self,
        question: str,
        *,
        messages: Sequence[params.Turn] | None = None,
        as_of: str | int | None = None,
        by: params.ByEnum | None = None,
        at: str | None = None,
        timeout: float | None = None,
    ) -> models.Asked:
        """Have the language model write a query for a question, and run it."""
        body = {"question": question, "messages": messages, "as_of": as_of, "by": by, "at": at}
        request = write("POST", f"{self._path}ask/", body)
        return self._transport.finish(request, models.Asked, timeout)

    def search(
        self,
        query: str,
        *,
        messages: Sequence[params.Turn] | None = None,
        top_k: int | None = None,
        words: int | None = None,
        filters: params.SearchFilter | None = None,
        threshold: float | None = None,
        as_of: str | int | None = None,
        include: params.IncludeEnum | None = None,
        explain: bool | None = None,
        corpora: Sequence[params.CorpusEnum] | None = None,
    ) -> models.Found:
        """Find what was said, by words and by meaning."""
        body = {
            "query": query,
            "messages": messages,
            "top_k": top_k,
            "words": words,
            "filters": filters,
            "threshold": threshold,
            "as_of": as_of,
            "include": include,
            "explain": explain,
            "in": corpora,
        }
        request = ask(f"{self._path}search/", body)
        return self._transport.fetch(request, models.Found)

    def context(
        self,
        query: str | None = None,
        *,
        messages: Sequence[params.Turn] | None = None,
        tokens: int | None = None,
        as_of: str | int | None = None,
        trust: Sequence[params.TrustEnum] | None = None,
    ) -> models.Context:
        """Return the text for an agent's prompt: alerts, and what matters for the message."""
        body = {
            "query": query,
            "messages": messages,
            "tokens": tokens,
            "as_of": as_of,
            "trust": trust,
        }
        request = ask(f"{self._path}context/", body)
        return self._transport.fetch(request, models.Context)

    def records(
        self,
        collection: str,
        *,
        as_of: str | None = None,
        by: params.ByEnum | None = None,
    ) -> Pages[models.TypedRecord]:
        """Return the records of a collection, such as `travel.trips`."""
        domain, _, name = collection.rpartition(".")
        request = read(
            f"{self._path}{path('state', domain or 'general', name)}", as_of=as_of, by=by
        )
        return Pages(self._transport, request, models.RecordPage, "records")

    def state(self, *, as_of: str | None = None, by: params.ByEnum | None = None) -> models.State:
        """Return the classes and collections, without the records."""
        request = read(f"{self._path}state/", as_of=as_of, by=by)
        return self._transport.fetch(request, models.State)

    def schema(self) -> str:
        """Return a module with the user's classes, for your code (see `userascode.schema`)."""
        return module_of(self.state())

    def manifest(
        self, *, as_of: str | None = None, by: params.ByEnum | None = None
    ) -> models.Manifest:
        """Return a short summary of the project."""
        request = read(f"{self._path}manifest/", as_of=as_of, by=by)
        return self._transport.fetch(request, models.Manifest)

    def forecast(self) -> models.Forecast:
        """Return the alerts to come if nothing changes but the clock."""
        return self._transport.fetch(read(f"{self._path}forecast/"), models.Forecast)

    def diff(
        self, since: str, until: str | None = None, *, by: params.ByEnum | None = None
    ) -> models.Difference:
        """Return what has changed between two moments or versions."""
        request = read(f"{self._path}diff/", since=since, until=until, by=by)
        return self._transport.fetch(request, models.Difference)

    def export(self, *, as_of: str | None = None) -> bytes:
        """Return the project as a zip."""
        return (self._transport.send(read(f"{self._path}export/", as_of=as_of))).content

    def subject_access(self) -> bytes:
        """Return everything that is stored about the user, as a zip."""
        return (self._transport.send(read(f"{self._path}subject-access/"))).content

    def import_project(
        self, project: Mapping[str, str] | bytes, *, timeout: float | None = None
    ) -> models.ImportDecision:
        """Import a project: its files, or a zip. Raises GateRefused."""
        address = f"{self._path}import/"
        if isinstance(project, bytes):
            request = write("POST", address, content=project)
        else:
            request = write("POST", address, {"files": dict(project)})
        return self._transport.finish(request, models.ImportDecision, timeout)

    def runs(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        outcome: str | None = None,
        page_size: int | None = None,
    ) -> Pages[models.RunSummary]:
        """Return the user's runs, newest first."""
        request = read(
            f"{self._path}runs/", kind=kind, status=status, outcome=outcome, page_size=page_size
        )
        return Pages(self._transport, request, models.PaginatedRunSummaryList)

    def backtest(
        self,
        constraint: str,
        *,
        source: str | None = None,
        days: int | None = None,
        by: params.ByEnum | None = None,
    ) -> models.BacktestDetail:
        """Start to run a constraint on the past; `client.backtests.get` shows the progress."""
        body = {"constraint": constraint, "source": source, "days": days, "by": by}
        request = write("POST", f"{self._path}backtests/", body)
        return self._transport.fetch(request, models.BacktestDetail)


class Documents:
    """The documents that were uploaded for a user."""

    def __init__(self, transport: Transport, user_path: str) -> None:
        self._transport = transport
        self._path = f"{user_path}documents/"

    def add(
        self,
        file: Path | tuple[str, bytes],
        *,
        occurred_at: str | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Document:
        """Upload a file, or its name and content; return the document once its text is in the log.

        See its `error` if it has no text there, and `is_duplicate` if it was uploaded before.
        """
        request = write("POST", self._path, {"occurred_at": occurred_at}, file=named(file))
        return self._transport.settle(request, models.Document, wait=wait, timeout=timeout)

    def list(self, *, page_size: int | None = None) -> Pages[models.Document]:
        """Return the documents, newest first."""
        request = read(self._path, page_size=page_size)
        return Pages(self._transport, request, models.PaginatedDocumentList)

    def get(self, document_id: str) -> models.Document:
        """Return a document by its id."""
        return self._transport.fetch(read(f"{self._path}{path(document_id)}"), models.Document)

    def content(self, document_id: str) -> bytes:
        """Return the file as it was uploaded, if it is stored."""
        request = read(f"{self._path}{path(document_id)}content/")
        return (self._transport.send(request)).content

    def redact(
        self,
        document_id: str,
        reason: str | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Redaction | None:
        """Delete a document, its text and everything derived; None if it had no text in the log."""
        request = write("DELETE", f"{self._path}{path(document_id)}", reason=reason)
        return self._transport.settle_if_any(request, models.Redaction, wait=wait, timeout=timeout)


class Entries:
    """The entries of a user's log."""

    def __init__(self, transport: Transport, user_path: str) -> None:
        self._transport = transport
        self._user = user_path

    def list(
        self,
        *,
        after: int | None = None,
        kind: str | None = None,
        seq: Sequence[int] | None = None,
        session_id: str | None = None,
        page_size: int | None = None,
    ) -> Pages[models.Entry]:
        """Return the entries, oldest first; with `seq`, those with these numbers."""
        request = read(
            f"{self._user}entries/",
            after=after,
            kind=kind,
            seq=None if seq is None else ",".join(map(str, seq)),
            session_id=session_id,
            page_size=page_size,
        )
        return Pages(self._transport, request, models.PaginatedEntryList)

    def get(self, seq: int) -> models.Entry:
        """Return an entry by its number."""
        return self._transport.fetch(read(f"{self._user}{path('entries', seq)}"), models.Entry)

    def redaction_preview(self, seq: int) -> models.RedactionPreview:
        """Return what the redaction of an entry would remove."""
        request = read(f"{self._user}{path('entries', seq)}redaction/")
        return self._transport.fetch(request, models.RedactionPreview)

    def redact(
        self,
        seq: int,
        reason: str | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Redaction:
        """Empty an entry, and remove everything that was derived from it."""
        request = write("DELETE", f"{self._user}{path('entries', seq)}", reason=reason)
        return self._transport.settle(request, models.Redaction, wait=wait, timeout=timeout)

    def redaction(self, seq: int) -> models.Redaction:
        """Return how far a redaction is."""
        request = read(f"{self._user}{path('redactions', seq)}")
        return self._transport.fetch(request, models.Redaction)

    def reopen(
        self,
        *,
        entries: Sequence[int] | None = None,
        session_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        model: str | None = None,
        outcomes: Sequence[params.OutcomesEnum] | None = None,
        reason: str | None = None,
    ) -> models.Reopening:
        """Have entries processed again that were settled wrongly."""
        body = {
            "entries": entries,
            "session_id": session_id,
            "since": since,
            "until": until,
            "model": model,
            "outcomes": outcomes,
            "reason": reason,
        }
        request = write("POST", f"{self._user}outcomes/reopen/", body)
        return self._transport.fetch(request, models.Reopening)


class Constraints:
    """The constraints of a user."""

    def __init__(self, transport: Transport, user_path: str) -> None:
        self._transport = transport
        self._path = f"{user_path}constraints/"

    def list(
        self, *, as_of: str | None = None, page_size: int | None = None
    ) -> Pages[models.Constraint]:
        """Return the constraints, with what is wrong with each."""
        request = read(self._path, as_of=as_of, page_size=page_size)
        return Pages(self._transport, request, models.ConstraintPage)

    def get(self, name: str, *, as_of: str | None = None) -> models.ConstraintDetail:
        """Return a constraint with its source and tests."""
        request = read(f"{self._path}{path(name)}", as_of=as_of)
        return self._transport.fetch(request, models.ConstraintDetail)

    def put(
        self,
        name: str,
        *,
        source: str,
        tests: str,
        sources: Sequence[int] | None = None,
        if_match: str | None = None,
        timeout: float | None = None,
    ) -> models.Decision:
        """Write a constraint, which goes live if the gate accepts it. Raises GateRefused."""
        body = {"source": source, "tests": tests, "sources": sources}
        request = write("PUT", f"{self._path}{path(name)}", body, if_match=if_match)
        return self._transport.finish(request, models.Decision, timeout)

    def delete(
        self, name: str, *, if_match: str | None = None, timeout: float | None = None
    ) -> models.Decision:
        """Delete a constraint."""
        request = write("DELETE", f"{self._path}{path(name)}", if_match=if_match)
        return self._transport.finish(request, models.Decision, timeout)

    def run(
        self,
        name: str,
        *,
        as_of: str | int | None = None,
        by: params.ByEnum | None = None,
        at: str | None = None,
        timeout: float | None = None,
    ) -> models.TriedConstraint:
        """Return what a constraint would alert, and open no alert."""
        body = {"as_of": as_of, "by": by, "at": at}
        request = write("POST", f"{self._path}{path(name, 'run')}", body)
        return self._transport.finish(request, models.TriedConstraint, timeout)


class Checkpoints:
    """The versions of a user's project."""

    def __init__(self, transport: Transport, user_path: str) -> None:
        self._transport = transport
        self._path = f"{user_path}checkpoints/"

    def list(self, *, page_size: int | None = None) -> Pages[models.Checkpoint]:
        """Return the versions, newest first."""
        request = read(self._path, page_size=page_size)
        return Pages(self._transport, request, models.PaginatedCheckpointList)

    def get(self, version: int) -> models.CheckpointDetail:
        """Return a version with its files, edits and verdict."""
        request = read(f"{self._path}{path(version)}")
        return self._transport.fetch(request, models.CheckpointDetail)

    def file(self, version: int, name: str) -> models.File:
        """Return a file of a version, such as `domains/travel/state.py`."""
        request = read(f"{self._path}{path(version, 'files')}{name}")
        return self._transport.fetch(request, models.File)

    def propose(
        self,
        *,
        edits: Sequence[params.Edit] | None = None,
        files: Mapping[str, str] | None = None,
        version: int | None = None,
        considered: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> models.Decision:
        """Propose a change, by edits or by whole files. Raises GateRefused."""
        body = {"edits": edits, "files": files, "version": version, "considered": considered}
        request = write("POST", self._path, body)
        return self._transport.finish(request, models.Decision, timeout)

    def preview_restore(self, version: int) -> models.Excluded:
        """Return what a return to a version would leave out."""
        request = read(f"{self._path}{path(version, 'restore')}")
        return self._transport.fetch(request, models.Excluded)

    def restore(
        self, version: int, *, reason: str | None = None, reopen: bool | None = None
    ) -> models.CheckpointDetail:
        """Return to a version, as a new one."""
        body = {"reason": reason, "reopen": reopen}
        request = write("POST", f"{self._path}{path(version, 'restore')}", body)
        return self._transport.fetch(request, models.CheckpointDetail)
