"""`manage.py create_workspace NAME`: create a workspace with an API key."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.workspaces import create_key


class Command(BaseCommand):
    """Creates a workspace if it doesn't exist, and always creates a new API key for it."""

    help = (
        "Create a workspace if none with this name exists, and a new API key for it; print both as"
        " JSON."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add arguments for the workspace's name, and for the key's name and scopes."""
        parser.add_argument("name", help="name of the workspace")
        parser.add_argument(
            "--key-name",
            default="command line",
            help="name for the key, such as the program that uses it",
        )
        parser.add_argument(
            "--scope",
            action="append",
            choices=Scope.values,
            help="a scope to grant; may be repeated; default: read and write",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line of JSON with the workspace and the key's text, which is shown only once."""
        workspace, _ = Workspace.objects.get_or_create(name=options["name"])
        scopes = [Scope(scope) for scope in options["scope"] or (Scope.READ, Scope.WRITE)]
        _, text = create_key(workspace, options["key_name"], scopes)
        self.stdout.write(json.dumps({"workspace": workspace.name, "api_key": text}))
