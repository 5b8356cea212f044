"""What a server remembers of one user."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from userascode import entries, models, params
from userascode._async.alerts import AsyncAlerts
from userascode._async.transport import AsyncPages, AsyncTransport
from userascode.protocol import ask, named, path, read, write
from userascode.pull import module_of


class AsyncUser:
    """A user of your product, under the id that your product uses. Creating this asks nothing."""

    def __init__(self, transport: AsyncTransport, user_id: str) -> None:
        self.user_id = user_id
        self._transport = transport
        self._path = path("users", user_id)
        self.alerts = AsyncAlerts(transport, self._path)
        self.checkpoints = AsyncCheckpoints(transport, self._path)
        self.constraints = AsyncConstraints(transport, self._path)
        self.documents = AsyncDocuments(transport, self._path)
        self.entries = AsyncEntries(transport, self._path)

    async def details(self) -> models.UserDetail:
        """Return the user, with how far its entries are processed."""
        return await self._transport.fetch(read(self._path), models.UserDetail)

    async def change(
        self,
        *,
        time_zone: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        if_match: str | None = None,
    ) -> models.UserDetail:
        """Change the user's time zone or metadata."""
        body = {"time_zone": time_zone, "metadata": metadata}
        request = write("PATCH", self._path, body, if_match=if_match)
        return await self._transport.fetch(request, models.UserDetail)

    async def erase(
        self,
        reason: str,
        *,
        if_match: str | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Erasure:
        """Delete everything about the user; return the tombstone."""
        request = write("DELETE", self._path, if_match=if_match, reason=reason)
        return await self._transport.settle(request, models.Erasure, wait=wait, timeout=timeout)

    async def merge(
        self, from_user: str, *, wait: bool = True, timeout: float | None = None
    ) -> models.Merge:
        """Merge another user, who is the same person, into this one."""
        request = write("POST", f"{self._path}merge/", {"from": from_user})
        return await self._transport.settle(request, models.Merge, wait=wait, timeout=timeout)

    async def merged(self) -> models.Merge:
        """Return how far this user's merge into another one is."""
        return await self._transport.fetch(read(f"{self._path}merge/"), models.Merge)

    async def add(self, *new: params.NewEntry | str, wait: float | None = None) -> models.Appended:
        """Append entries to the user's log; a text is a message of the user.

        With `wait`, typed entries are settled on return, unless that takes more seconds.
        """
        body = {"entries": [entries.message(one) if isinstance(one, str) else one for one in new]}
        request = write("POST", f"{self._path}entries/", body, wait=wait)
        return await self._transport.fetch(request, models.Appended)

    async def query(
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
        return await self._transport.finish(request, models.Answer, timeout)

    async def ask(
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
        return await self._transport.finish(request, models.Asked, timeout)

    async def search(
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
        return await self._transport.fetch(request, models.Found)

    async def context(
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
        return await self._transport.fetch(request, models.Context)

    def records(
        self,
        collection: str,
        *,
        as_of: str | None = None,
        by: params.ByEnum | None = None,
    ) -> AsyncPages[models.TypedRecord]:
        """Return the records of a collection, such as `travel.trips`."""
        domain, _, name = collection.rpartition(".")
        request = read(
            f"{self._path}{path('state', domain or 'general', name)}", as_of=as_of, by=by
        )
        return AsyncPages(self._transport, request, models.RecordPage, "records")

    async def state(
        self, *, as_of: str | None = None, by: params.ByEnum | None = None
    ) -> models.State:
        """Return the classes and collections, without the records."""
        request = read(f"{self._path}state/", as_of=as_of, by=by)
        return await self._transport.fetch(request, models.State)

    async def schema(self) -> str:
        """Return a module with the user's classes, for your code (see `userascode.schema`)."""
        return module_of(await self.state())

    async def manifest(
        self, *, as_of: str | None = None, by: params.ByEnum | None = None
    ) -> models.Manifest:
        """Return a short summary of the project."""
        request = read(f"{self._path}manifest/", as_of=as_of, by=by)
        return await self._transport.fetch(request, models.Manifest)

    async def forecast(self) -> models.Forecast:
        """Return the alerts to come if nothing changes but the clock."""
        return await self._transport.fetch(read(f"{self._path}forecast/"), models.Forecast)

    async def diff(
        self, since: str, until: str | None = None, *, by: params.ByEnum | None = None
    ) -> models.Difference:
        """Return what has changed between two moments or versions."""
        request = read(f"{self._path}diff/", since=since, until=until, by=by)
        return await self._transport.fetch(request, models.Difference)

    async def export(self, *, as_of: str | None = None) -> bytes:
        """Return the project as a zip."""
        return (await self._transport.send(read(f"{self._path}export/", as_of=as_of))).content

    async def subject_access(self) -> bytes:
        """Return everything that is stored about the user, as a zip."""
        return (await self._transport.send(read(f"{self._path}subject-access/"))).content

    async def import_project(
        self, project: Mapping[str, str] | bytes, *, timeout: float | None = None
    ) -> models.ImportDecision:
        """Import a project: its files, or a zip. Raises GateRefused."""
        address = f"{self._path}import/"
        if isinstance(project, bytes):
            request = write("POST", address, content=project)
        else:
            request = write("POST", address, {"files": dict(project)})
        return await self._transport.finish(request, models.ImportDecision, timeout)

    def runs(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        outcome: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.RunSummary]:
        """Return the user's runs, newest first."""
        request = read(
            f"{self._path}runs/", kind=kind, status=status, outcome=outcome, page_size=page_size
        )
        return AsyncPages(self._transport, request, models.PaginatedRunSummaryList)

    async def backtest(
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
        return await self._transport.fetch(request, models.BacktestDetail)


class AsyncDocuments:
    """The documents that were uploaded for a user."""

    def __init__(self, transport: AsyncTransport, user_path: str) -> None:
        self._transport = transport
        self._path = f"{user_path}documents/"

    async def add(
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
        return await self._transport.settle(request, models.Document, wait=wait, timeout=timeout)

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.Document]:
        """Return the documents, newest first."""
        request = read(self._path, page_size=page_size)
        return AsyncPages(self._transport, request, models.PaginatedDocumentList)

    async def get(self, document_id: str) -> models.Document:
        """Return a document by its id."""
        return await self._transport.fetch(
            read(f"{self._path}{path(document_id)}"), models.Document
        )

    async def content(self, document_id: str) -> bytes:
        """Return the file as it was uploaded, if it is stored."""
        request = read(f"{self._path}{path(document_id)}content/")
        return (await self._transport.send(request)).content

    async def redact(
        self,
        document_id: str,
        reason: str | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Redaction | None:
        """Delete a document, its text and everything derived; None if it had no text in the log."""
        request = write("DELETE", f"{self._path}{path(document_id)}", reason=reason)
        return await self._transport.settle_if_any(
            request, models.Redaction, wait=wait, timeout=timeout
        )


class AsyncEntries:
    """The entries of a user's log."""

    def __init__(self, transport: AsyncTransport, user_path: str) -> None:
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
    ) -> AsyncPages[models.Entry]:
        """Return the entries, oldest first; with `seq`, those with these numbers."""
        request = read(
            f"{self._user}entries/",
            after=after,
            kind=kind,
            seq=None if seq is None else ",".join(map(str, seq)),
            session_id=session_id,
            page_size=page_size,
        )
        return AsyncPages(self._transport, request, models.PaginatedEntryList)

    async def get(self, seq: int) -> models.Entry:
        """Return an entry by its number."""
        return await self._transport.fetch(
            read(f"{self._user}{path('entries', seq)}"), models.Entry
        )

    async def redaction_preview(self, seq: int) -> models.RedactionPreview:
        """Return what the redaction of an entry would remove."""
        request = read(f"{self._user}{path('entries', seq)}redaction/")
        return await self._transport.fetch(request, models.RedactionPreview)

    async def redact(
        self,
        seq: int,
        reason: str | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> models.Redaction:
        """Empty an entry, and remove everything that was derived from it."""
        request = write("DELETE", f"{self._user}{path('entries', seq)}", reason=reason)
        return await self._transport.settle(request, models.Redaction, wait=wait, timeout=timeout)

    async def redaction(self, seq: int) -> models.Redaction:
        """Return how far a redaction is."""
        request = read(f"{self._user}{path('redactions', seq)}")
        return await self._transport.fetch(request, models.Redaction)

    async def reopen(
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
        return await self._transport.fetch(request, models.Reopening)


class AsyncConstraints:
    """The constraints of a user."""

    def __init__(self, transport: AsyncTransport, user_path: str) -> None:
        self._transport = transport
        self._path = f"{user_path}constraints/"

    def list(
        self, *, as_of: str | None = None, page_size: int | None = None
    ) -> AsyncPages[models.Constraint]:
        """Return the constraints, with what is wrong with each."""
        request = read(self._path, as_of=as_of, page_size=page_size)
        return AsyncPages(self._transport, request, models.ConstraintPage)

    async def get(self, name: str, *, as_of: str | None = None) -> models.ConstraintDetail:
        """Return a constraint with its source and tests."""
        request = read(f"{self._path}{path(name)}", as_of=as_of)
        return await self._transport.fetch(request, models.ConstraintDetail)

    async def put(
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
        return await self._transport.finish(request, models.Decision, timeout)

    async def delete(
        self, name: str, *, if_match: str | None = None, timeout: float | None = None
    ) -> models.Decision:
        """Delete a constraint."""
        request = write("DELETE", f"{self._path}{path(name)}", if_match=if_match)
        return await self._transport.finish(request, models.Decision, timeout)

    async def run(
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
        return await self._transport.finish(request, models.TriedConstraint, timeout)


class AsyncCheckpoints:
    """The versions of a user's project."""

    def __init__(self, transport: AsyncTransport, user_path: str) -> None:
        self._transport = transport
        self._path = f"{user_path}checkpoints/"

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.Checkpoint]:
        """Return the versions, newest first."""
        request = read(self._path, page_size=page_size)
        return AsyncPages(self._transport, request, models.PaginatedCheckpointList)

    async def get(self, version: int) -> models.CheckpointDetail:
        """Return a version with its files, edits and verdict."""
        request = read(f"{self._path}{path(version)}")
        return await self._transport.fetch(request, models.CheckpointDetail)

    async def file(self, version: int, name: str) -> models.File:
        """Return a file of a version, such as `domains/travel/state.py`."""
        request = read(f"{self._path}{path(version, 'files')}{name}")
        return await self._transport.fetch(request, models.File)

    async def propose(
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
        return await self._transport.finish(request, models.Decision, timeout)

    async def preview_restore(self, version: int) -> models.Excluded:
        """Return what a return to a version would leave out."""
        request = read(f"{self._path}{path(version, 'restore')}")
        return await self._transport.fetch(request, models.Excluded)

    async def restore(
        self, version: int, *, reason: str | None = None, reopen: bool | None = None
    ) -> models.CheckpointDetail:
        """Return to a version, as a new one."""
        body = {"reason": reason, "reopen": reopen}
        request = write("POST", f"{self._path}{path(version, 'restore')}", body)
        return await self._transport.fetch(request, models.CheckpointDetail)
