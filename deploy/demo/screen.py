"""The demo's output: plain text that reads well without colour; terminals also get colour."""

import os
import sys
import time

_RESET = "\033[0m"
_BOLD = "\033[1m"
_RED = "\033[1;31m"
_GREEN = "\033[32m"
_YELLOW = "\033[1;33m"


class Screen:
    """Prints headings, lines and alerts; each heading shows the seconds since the start."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._start = time.monotonic()

    def stage(self, title: str) -> None:
        """Print the heading of the next stage."""
        self._print(f"\n[{time.monotonic() - self._start:5.1f} s] {title}", _BOLD)

    def line(self, text: str) -> None:
        """Print text below the heading, line by line."""
        for line in text.splitlines() or [""]:
            self._print(f"          {line}".rstrip())

    def good(self, text: str) -> None:
        """Print an expected result."""
        self._print(f"          {text}", _GREEN)

    def bad(self, text: str) -> None:
        """Print a problem."""
        self._print(f"  WRONG   {text}", _RED)

    def alert(self, severity: str, message: str) -> None:
        """Print an alert's headline."""
        colour = _RED if severity == "critical" else _YELLOW
        self._print(f"   ALERT  {severity.upper()}: {message}", colour)

    def _print(self, text: str, colour: str = "") -> None:
        if self._colour and colour:
            text = f"{colour}{text}{_RESET}"
        print(text, flush=True)
