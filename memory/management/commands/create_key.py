"""`manage.py create_key WORKSPACE`: create or replace an API key for a workspace."""

import datetime
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.workspaces import (
    OVERLAP,
    NotReplaced,
    UnknownUsers,
    create_key,
    persons,
    replace_key,
)


class Command(BaseCommand):
    """Creates or replaces an API key, and prints the new key."""

    help = "Create an API key for a workspace, or replace an existing key; print it as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add arguments for the key's scopes, users and expiry, or for the key to replace."""
        parser.add_argument("workspace", help="name of the workspace")
        parser.add_argument(
            "--name",
            default="command line",
            help="name for the key, such as the program that uses it",
        )
        parser.add_argument(
            "--scope",
            action="append",
            choices=Scope.values,
            help="a scope to grant; may be repeated; default: read and write",
        )
        parser.add_argument(
            "--user",
            action="append",
            metavar="USER_ID",
            help="a user to limit the key to; may be repeated; default: all users",
        )
        parser.add_argument(
            "--expires-days", type=float, help="days until the key expires; default: never"
        )
        parser.add_argument(
            "--replace",
            metavar="PREFIX",
            help="replace the key that begins with uac_PREFIX_ with one that has the same"
            " permissions; the old key then expires: see --overlap-hours",
        )
        parser.add_argument(
            "--overlap-hours",
            type=float,
            default=OVERLAP.total_seconds() / 3600,
            help="hours that a replaced key stays valid alongside the new one; default:"
            " %(default)g",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line of JSON with the workspace and the key's text, which is shown only once."""
        try:
            workspace = Workspace.objects.get(name=options["workspace"])
        except Workspace.DoesNotExist:
            raise CommandError(f"There is no workspace {options['workspace']!r}.") from None
        text = self._replaced(workspace, options) if options["replace"] else None
        text = text or self._created(workspace, options)
        self.stdout.write(json.dumps({"workspace": workspace.name, "api_key": text}))

    def _created(self, workspace: Workspace, options: dict[str, Any]) -> str:
        days = options["expires_days"]
        if days is not None and days <= 0:
            raise CommandError("--expires-days must be greater than 0.")
        try:
            pks = persons(workspace, options["user"]) if options["user"] else None
        except UnknownUsers as error:
            raise CommandError(f"--user: {error}") from None
        _, text = create_key(
            workspace,
            options["name"],
            [Scope(scope) for scope in options["scope"] or (Scope.READ, Scope.WRITE)],
            expires_at=None if days is None else timezone.now() + datetime.timedelta(days=days),
            user_pks=pks,
        )
        return text

    def _replaced(self, workspace: Workspace, options: dict[str, Any]) -> str:
        if options["scope"] or options["user"] or options["expires_days"] is not None:
            raise CommandError(
                "--replace cannot be combined with --scope, --user or --expires-days: the new key"
                " inherits the old one's permissions and expiry."
            )
        if options["overlap_hours"] < 0:
            raise CommandError("--overlap-hours must be at least 0.")
        prefix = options["replace"].removeprefix("uac_").rstrip("_…")
        key = ApiKey.objects.filter(workspace=workspace, prefix=prefix, revoked_at=None).first()
        if key is None:
            raise CommandError(f"--replace: {workspace} has no valid key uac_{prefix}_….")
        try:
            _, text = replace_key(key, datetime.timedelta(hours=options["overlap_hours"]))
        except NotReplaced as error:
            raise CommandError(f"--replace: {error}") from None
        return text
