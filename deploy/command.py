"""The command `userascode-server` of the installed package."""

import os
import sys
from collections.abc import Mapping, Sequence

# What `userascode-server NAME` runs, before further arguments (docs/settings.md).
PROCESSES: Mapping[str, Sequence[str]] = {
    "serve": ("granian", "--interface", "wsgi", "uac_site.wsgi:application"),
    "mcp": ("granian", "--interface", "asgi", "uac_site.asgi:application"),
    "worker": ("celery", "--app", "uac_site", "worker", "--pool", "threads"),
    "beat": ("celery", "--app", "uac_site", "beat"),
    "manage": ("django",),
}
USAGE = """\
userascode-server demo     the whole server on this machine, with a sample person (--help)

With the settings of a server (docs/configuration.md), and further arguments of the program:
  serve    the web process (granian)
  mcp      the process for agents (granian)
  worker   --queues sandbox | llm | default (celery)
  beat     the clock (celery)
  manage   migrate, collectstatic, create_workspace ... (django)
"""


def main() -> None:
    """Run one of the commands."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name == "demo":
        sys.exit(_run_demo(arguments))
    if name not in PROCESSES:
        sys.stderr.write(USAGE)
        sys.exit(0 if name in ("-h", "--help") else 2)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")
    command = [sys.executable, "-m", *PROCESSES[name], *arguments]
    os.execv(sys.executable, command)  # noqa: S606  # nosec B606 # our own program


def _run_demo(arguments: Sequence[str]) -> int | str:
    """Run the demo; return its exit status, or why it cannot run here."""
    if sys.platform != "linux":
        return "The demo needs Linux. Elsewhere, run it in a container: docs/deployment.md."
    from deploy.demo.__main__ import main as run_demo

    return run_demo(arguments)
