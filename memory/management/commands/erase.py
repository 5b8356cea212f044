"""`manage.py erase`: list erasures, and repeat them after a backup has been restored."""

import json
import sys
import uuid
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memory.models import MemoryUser, UserErasure
from memory.privacy import user_erasure


class Command(BaseCommand):
    """Lists erasures, to be kept outside of backups, and requests them again from such a list."""

    help = (
        "List the erased users as one line of JSON each; --again reads such lines (from log files,"
        " too) and again erases the users that a restored backup has brought back."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments: the list to repeat."""
        parser.add_argument("--again", metavar="FILE", help="the list; - for standard input")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the list, or the result for each of its lines."""
        if options["again"] is None:
            for row in UserErasure.objects.select_related("user").order_by("created_at").iterator():
                line = {"erased_user": str(row.user.public_id), "at": row.created_at.isoformat()}
                self.stdout.write(json.dumps(line))
            return
        try:
            name = options["again"]
            lines = sys.stdin if name == "-" else Path(name).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--again: {error}") from None
        listed = {name for line in lines if (name := _listed(line)) is not None}
        if not listed:
            raise CommandError('--again: no line has {"erased_user": "…"}')
        back = list(MemoryUser.objects.filter(public_id__in=listed))
        # A merged user is erased with the user that it was merged into.
        for user in sorted(back, key=lambda user: user.merged_into_id is not None):
            user_erasure.ask(user, by="command", reason=user_erasure.RESTORED)
        self.stdout.write(f"users listed: {len(listed)}; being erased again: {len(back)}")


def _listed(line: str) -> uuid.UUID | None:
    """Return the id of the user that a line names; None if it names no user."""
    try:
        return uuid.UUID(json.loads(line)["erased_user"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
