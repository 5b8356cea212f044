"""`manage.py erase`: list erased users, or erase them again after restoring a backup."""

import json
import sys
import uuid
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memory.kernel.models.users import MemoryUser
from memory.privacy import user_erasure
from memory.privacy.models import UserErasure


class Command(BaseCommand):
    """Lists erased users (keep the list outside your backups), or erases listed users again."""

    help = (
        "List the erased users, one JSON object per line. With --again, read such lines from a file"
        " (other lines in it are ignored) and erase any users brought back by a restored backup."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the argument for the list of users to erase again."""
        parser.add_argument("--again", metavar="FILE", help="file to read; - for standard input")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the list of erased users, or how many users are being erased again."""
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
            raise CommandError('--again: no line contains {"erased_user": "…"}')
        back = list(MemoryUser.objects.filter(public_id__in=listed))
        # Merged users come last: erasing the user they were merged into erases them, too.
        for user in sorted(back, key=lambda user: user.merged_into_id is not None):
            user_erasure.ask(user, by="command", reason=user_erasure.RESTORED)
        self.stdout.write(f"users listed: {len(listed)}; being erased again: {len(back)}")


def _listed(line: str) -> uuid.UUID | None:
    """Return the id of the erased user on this line of the list, or None if the line has none."""
    try:
        return uuid.UUID(json.loads(line)["erased_user"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
