"""`manage.py verify`: proof that nothing was lost or changed."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from memory.models import MemoryUser
from memory.verification import problems


class Command(BaseCommand):
    """Checks logs, projects and outcomes against each other and against their hashes."""

    help = "Verify hash chains, numbering, file hashes, heads and outcomes; exit 1 on a problem."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the users to verify; all by default."""
        parser.add_argument("--workspace", help="only users of this workspace")
        parser.add_argument("--user", help="only users with this user_id")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each problem and a last line that counts users, entries and problems."""
        users = MemoryUser.objects.order_by("pk").select_related("workspace", "head")
        if options["workspace"]:
            users = users.filter(workspace__name=options["workspace"])
        if options["user"]:
            users = users.filter(user_id=options["user"])
        verified = entries = found = 0
        for user in users.iterator(chunk_size=500):
            verified += 1
            with transaction.atomic():
                # One snapshot, so that a server that goes on writing is not accused.
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                for problem in problems(user):
                    found += 1
                    self.stdout.write(f"{user.workspace.name} / {user.user_id}: {problem}")
            entries += user.last_seq
        self.stdout.write(f"verified {verified} users, {entries} entries: {found} problems")
        if found:
            raise CommandError(f"{found} problems found")
        if not verified and (options["user"] or options["workspace"]):
            raise CommandError("no user matches")
