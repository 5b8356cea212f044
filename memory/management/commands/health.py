"""`manage.py health`: look for problems with the server itself, now."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memory.operations import alarms


class Command(BaseCommand):
    """Runs the checks for alarms once, without raising any."""

    help = "Print the server's problems. The exit status is 0 if there are none, otherwise 1."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each problem with its name, the same as in alarms."""
        problems = list(alarms.problems())
        for problem in problems:
            self.stdout.write(f"{problem.name}: {problem.detail}")
        if problems:
            raise CommandError(f"{len(problems)} problems found")
