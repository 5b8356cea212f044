"""`python -m deploy.demo [--exit]`: run the whole server, loaded with a sample person."""

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

from cryptography.fernet import Fernet

from deploy.demo import person, recorded_model
from deploy.demo.screen import Screen
from deploy.demo.story import ModelStopped, Story
from deploy.embedded.folder import AlreadyRunning, kept, usable_folder
from deploy.embedded.http import ApiClient, UnexpectedAnswer
from deploy.embedded.process import ProcessFailed
from deploy.embedded.system import System, running_system

DESCRIPTION = "Run the whole server, loaded with a sample person."
_ADMIN = "demo"
_SCOPES = [f"--scope={scope}" for scope in ("read", "write", "manage")]
# The processes have checked the settings when they started.
_CHECKED = "--skip-checks"
_HURRY = (
    "from memory.kernel.models.users import Lane; from memory.log import lanes;"
    " lanes.hurry(Lane.objects.all())"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="demo", description=DESCRIPTION)
    parser.add_argument(
        "--exit", action="store_true", help="stop after the checks; the exit status is the result"
    )
    parser.add_argument("--port", type=int, default=8000, help="first port to try (default 8000)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--data", type=Path, default=Path(".demo"), help="data folder")
    options = parser.parse_args(arguments)
    screen = Screen()
    try:
        screen.stage("Starting the server: every part is a real process")
        with (
            _language_model(screen) as model,
            running_system(
                options.data,
                web_host=options.host,
                web_port=options.port,
                mcp=True,
                llm_workers=1,
                environment={**model, **_webhooks(options.data)},
                report=screen.line,
            ) as system,
        ):
            story = _run_story(system, screen)
            if options.exit:
                screen.stage("Stopping")
            else:
                _keep_running(system, screen)
    except KeyboardInterrupt:
        screen.line("Stopped. `make demo` resumes with this data.")
        return 0
    except (AlreadyRunning, ProcessFailed, ModelStopped, UnexpectedAnswer, OSError) as error:
        screen.bad(str(error))
        return 1
    if story.problems:
        screen.bad(f"{len(story.problems)} problem(s):")
        for problem in story.problems:
            screen.bad(f"- {problem}")
        return 1
    screen.good("All alerts and answers are there.")
    return 0


@contextmanager
def _language_model(screen: Screen) -> Iterator[dict[str, str]]:
    """Yield the variables that select the language model configured in the environment.

    If none is configured, the recordings are served instead.
    """
    # Process every entry immediately: the demo doesn't wait for more entries to save model calls.
    at_once = {"UAC_STRUCTURE_ENTRIES": os.environ.get("UAC_STRUCTURE_ENTRIES", "1")}
    if name := os.environ.get("UAC_LLM_MODEL") or os.environ.get("UAC_LLM_MODEL_FILE"):
        screen.line(f"language model: {name}")
        yield at_once
        return
    screen.line(
        "language model: none; recorded responses are used (for a real one, set UAC_LLM_MODEL"
        " and UAC_LLM_API_KEY)"
    )
    with recorded_model.recorded_model() as url:
        yield {
            **at_once,
            "UAC_LLM_MODEL": recorded_model.NAME,
            "UAC_LLM_BASE_URL": url,
            "UAC_LLM_API_KEY": "",
        }


def _webhooks(data: Path) -> dict[str, str]:
    """Return the variables that let webhooks reach a receiver on this machine."""
    folder = usable_folder(data)
    return {
        "UAC_ENCRYPTION_KEYS": os.environ.get("UAC_ENCRYPTION_KEYS")
        or kept(folder, "encryption_key", lambda: Fernet.generate_key().decode()),
        "UAC_WEBHOOK_ALLOWED_NETWORKS": os.environ.get("UAC_WEBHOOK_ALLOWED_NETWORKS")
        or "127.0.0.0/8,::1/128",
    }


def _run_story(system: System, screen: Screen) -> Story:
    """Run the demo's story; return it, including the problems found."""
    folder = system.data_folder
    api_key = kept(
        folder,
        "api_key",
        lambda: str(
            json.loads(system.manage("create_workspace", "demo", *_SCOPES, _CHECKED))["api_key"]
        ),
    )
    password = kept(folder, "admin_password")
    kept(folder, "admin_user", lambda: _create_admin(system, password))
    today = str(datetime.datetime.now(ZoneInfo(person.TIME_ZONE)).date())
    loaded_on = datetime.date.fromisoformat(kept(folder, "loaded_on", lambda: today))
    screen.line(f"server ready     {system.base_url}")
    screen.line(f"data and logs    {folder}")

    story = Story(
        client=ApiClient(system.base_url, api_key),
        screen=screen,
        check=system.check,
        hurry=lambda: system.manage("shell", "-c", _HURRY),
        loaded_on=loaded_on,
    )
    try:
        story.run()
    except (UnexpectedAnswer, OSError):
        system.check()  # a dead process explains more than a missing response does
        raise

    screen.stage("Look around")
    screen.line(f"admin            {system.base_url}/admin/")
    screen.line(f"log in as        {_ADMIN} / {password}")
    screen.line(f"agents (MCP)     {system.mcp_url}/users/{person.USER_ID}/mcp, with the key below")
    screen.line("")
    if story.runners != {"docker"}:
        screen.line("WARNING: constraints and queries ran in the process runner, which is only for")
        screen.line("development on your own machine and does not isolate untrusted code. With a")
        screen.line("Docker engine, they run in containers, as they always do in production.")
    else:
        screen.line("Constraints and queries ran in hardened Docker containers for this user only.")
    screen.line("")
    screen.line(
        "The API, from a second terminal (this key belongs to the demo and has all scopes):"
    )
    screen.line("")
    screen.line(f"export UAC_URL={system.base_url} UAC_KEY={api_key}")
    screen.line(
        f'curl -H "Authorization: Bearer $UAC_KEY" $UAC_URL/v1/users/{person.USER_ID}/manifest/'
    )
    return story


def _create_admin(system: System, password: str) -> str:
    try:
        system.manage(
            "createsuperuser",
            "--noinput",
            _CHECKED,
            environment={
                "DJANGO_SUPERUSER_USERNAME": _ADMIN,
                "DJANGO_SUPERUSER_EMAIL": "demo@example.com",
                "DJANGO_SUPERUSER_PASSWORD": password,
            },
        )
    except ProcessFailed as error:
        # An earlier run may have been interrupted between creating the account and recording it.
        if "already taken" not in str(error):
            raise
    return _ADMIN


def _keep_running(system: System, screen: Screen) -> None:
    screen.stage("Running until Ctrl-C or SIGTERM")
    while True:
        system.check()
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
