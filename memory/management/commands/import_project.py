"""`manage.py import_project DIR USER`: import Python files into a user's project."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memory.integrations import imports
from memory.integrations.imports import ImportRefused
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hints
from memory.log.sensitive_text import NotAdmitted
from memory.versions.models.runs import RunOutcome, RunStatus, RunTrigger


class Command(BaseCommand):
    """Queues the import of a directory, zip or file, and waits for a worker to finish it."""

    help = "Import the Python files in a folder or zip, or a single file, into a user's project."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add arguments for the files, the user and the timeout."""
        parser.add_argument("folder", type=Path, metavar="DIR", help="folder, zip, or one .py file")
        parser.add_argument("user", metavar="USER", help="user_id of an existing user")
        parser.add_argument(
            "--workspace",
            help="name of the user's workspace; needed if several have a user with this user_id",
        )
        parser.add_argument("--wait", type=float, default=120, help="seconds to wait; default: 120")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print one line of JSON with the new version and what the import changed or rejected."""
        users = MemoryUser.objects.filter(user_id=options["user"]).select_related("head")
        if options["workspace"]:
            users = users.filter(workspace__name=options["workspace"])
        rows = list(users[:2])
        if not rows:
            raise CommandError(f"there is no user {options['user']!r}: create the user first")
        if len(rows) > 1:
            raise CommandError(
                f"several workspaces have a user {options['user']!r}: give --workspace"
            )
        try:
            run = imports.queue(rows[0], imports.read_folder(options["folder"]), RunTrigger.COMMAND)
        except (ImportRefused, NotAdmitted) as error:
            raise CommandError(str(error)) from None
        hints.wait_done(run.pk, options["wait"])
        run.refresh_from_db()
        if run.status != RunStatus.DONE:
            raise CommandError(
                f"run {run.pk} has not finished after {options['wait']:g} s: is a worker running?"
            )
        if run.outcome != RunOutcome.OK:
            message = (run.error or {}).get("message", run.outcome)
            raise CommandError(f"not imported: {message}")
        output = run.output or {}
        self.stdout.write(
            json.dumps(
                {"run": str(run.pk), "version": output.get("version"), **output["import"]},
                ensure_ascii=False,
            )
        )
