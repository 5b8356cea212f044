"""`manage.py verify`: verify that no stored data has been lost, altered or left half done."""

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from memory.kernel.database.snapshots import snapshot
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.operations.verification import Discrepancy, problems, workspace_problems

# Exit statuses: problems were found; the data could not be verified.
PROBLEMS, NOT_VERIFIED = 1, 2
# Seconds between progress updates on a terminal.
PROGRESS_SECONDS = 5.0


class Command(BaseCommand):
    """Checks logs, projects, queues and event feeds against each other and their hashes."""

    help = (
        "Verify hash chains, numbering, files, versions, queues, alerts and event feeds. The exit"
        " status is 0 if there are no problems, 1 if there are, 2 if the verification failed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add arguments for what to verify (everything by default) and the report format."""
        parser.add_argument("--workspace", help="verify only this workspace")
        parser.add_argument("--user", help="verify only users with this user_id, and no feeds")
        parser.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object per line: the problems, then the totals",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each problem, then the number of users, entries and problems."""
        try:
            number = self._verify(options)
        except Error as error:
            message = f"verification failed: {error}"
            raise CommandError(message, returncode=NOT_VERIFIED) from error
        if number:
            raise CommandError(f"{number} problems found", returncode=PROBLEMS)

    def _verify(self, options: dict[str, Any]) -> int:
        workspaces = Workspace.objects.order_by("pk")
        users = MemoryUser.everybody.order_by("pk").select_related("workspace")
        if options["workspace"]:
            workspaces = workspaces.filter(name=options["workspace"])
            users = users.filter(workspace__name=options["workspace"])
        if options["user"]:
            workspaces = workspaces.none()
            users = users.filter(user_id=options["user"])
        verified = entries = number = 0
        report = self._as_json if options["json"] else self._as_text
        progress = _Progress(self.stderr.write, users.count())
        for workspace in workspaces:
            with snapshot():
                for problem in workspace_problems(workspace):
                    number += 1
                    report(workspace, None, problem)
        for user in users.iterator(chunk_size=500):
            with snapshot():
                for problem in problems(user):
                    number += 1
                    report(user.workspace, user, problem)
            verified += 1
            entries += user.last_seq
            progress.report(verified, entries, number)
        if options["json"]:
            self._line({"users": verified, "entries": entries, "problems": number})
        else:
            self.stdout.write(f"verified {verified} users, {entries} entries: {number} problems")
        if not verified and (options["user"] or options["workspace"]):
            raise CommandError("no user matches", returncode=NOT_VERIFIED)
        return number

    def _as_text(self, workspace: Workspace, user: MemoryUser | None, problem: Discrepancy) -> None:
        owner = f"{workspace.name} / {user.user_id}" if user else workspace.name
        self.stdout.write(f"{owner}: {problem}")

    def _as_json(self, workspace: Workspace, user: MemoryUser | None, problem: Discrepancy) -> None:
        self._line(
            {
                "workspace": workspace.name,
                "user": user.user_id if user else None,
                "code": problem.code,
                "problem": problem.message,
            }
        )

    def _line(self, value: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(value))


class _Progress:
    """Shows the verification's progress at intervals if stderr is a terminal."""

    def __init__(self, write: Callable[[str], object], users: int) -> None:
        self._write, self._users = write, users
        self._reported_at = time.monotonic()

    def report(self, verified: int, entries: int, number: int) -> None:
        """Show the progress if stderr is a terminal and PROGRESS_SECONDS have passed."""
        if sys.stderr.isatty() and time.monotonic() > self._reported_at + PROGRESS_SECONDS:
            self._reported_at = time.monotonic()
            line = f"{verified} of {self._users} users, {entries} entries: {number} problems"
            self._write(line)
