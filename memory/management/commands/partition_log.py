"""`manage.py partition_log`: partition the log table by user while the server is running."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memory.database import partitioning


class Command(BaseCommand):
    """Performs one step; docs/scaling.md lists the steps and says when partitioning pays off."""

    help = (
        "Partition the log by user while the server is running. Run the steps as the database role"
        " that owns the tables, in this order: prepare, copy, check, swap, finish. Until `finish`,"
        " a second `copy` and `swap` undo the partitioning."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add arguments for the step and its parameters."""
        steps = ("status", "prepare", "copy", "check", "swap", "finish")
        parser.add_argument("step", choices=steps)
        parser.add_argument(
            "--partitions",
            type=int,
            default=16,
            help="number of partitions that `prepare` creates; default: 16",
        )
        parser.add_argument(
            "--jobs", type=int, default=4, help="number of connections that `copy` uses; default: 4"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Perform the chosen step and print what was done."""
        try:
            self.stdout.write(self._do(options["step"], options["partitions"], options["jobs"]))
        except partitioning.NotNow as error:
            raise CommandError(str(error)) from error

    def _do(self, step: str, partitions: int, jobs: int) -> str:
        match step:
            case "prepare":
                partitioning.prepare(partitions)
                return f"created {partitions} empty partitions"
            case "copy":
                return f"{partitioning.copy(self._tell, jobs=jobs)} entries copied"
            case "check":
                if found := partitioning.differences():
                    raise CommandError(f"{found} copies differ from the log: do not swap")
                return "all copies are identical to the log"
            case "swap":
                return f"swapped: the log was locked for {partitioning.swap():.2f} s"
            case "finish":
                partitioning.finish()
                return "the spare table was deleted"
            case _:
                now = partitioning.state()
                what = "partitioned" if now.partitioned else "plain"
                beside = (
                    f"; the spare table ({now.spare}) lacks entries of {now.behind} users"
                    if now.spare
                    else "; there is no spare table"
                )
                return f"the log is {what}{beside}"

    def _tell(self, copied: int) -> None:
        if self.stderr.isatty():
            self.stderr.write(f"{copied} more")
