"""`manage.py sandbox doctor`: verify that sandboxes work and are safe here, or say what to fix."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from workers.sandbox.doctor import CheckResult, examine


class Command(BaseCommand):
    """Verifies every guarantee of the sandbox on this machine."""

    help = "doctor: verify every guarantee of the Docker sandbox on this machine; exit 1 on failure"
    # People run this command when something is wrong, so it must not depend on the system checks.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the action and its options."""
        parser.add_argument("action", choices=["doctor"])
        parser.add_argument("--json", action="store_true", help="one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each result once its check is done; raise CommandError if any check FAILED."""
        failed = 0
        for finding in examine():
            failed += finding.state == "FAILED"
            self.stdout.write(json.dumps(asdict(finding)) if options["json"] else _line(finding))
        if failed:
            checks = "1 check" if failed == 1 else f"{failed} checks"
            raise CommandError(f"{checks} failed: sandboxes are not safe to use on this machine")


def _line(finding: CheckResult) -> str:
    line = f"{finding.state:9}  {finding.check:21}  {finding.detail}"
    return f"{line}\n{'to fix':>22}{'':12}{finding.fix}" if finding.fix else line
