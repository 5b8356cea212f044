"""The command line `userascode`: tables for people, and `--json` for programs."""

import itertools
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from rich.console import Console
from rich.table import Table

from userascode import login, problems
from userascode._sync.client import Client
from userascode._sync.user import User
from userascode.base import Model
from userascode.entries import fact, message, record
from userascode.errors import UserAsCodeError
from userascode.hooks import HOSTS, respond
from userascode.imports.formats import Skipped, items_of
from userascode.imports.reading import names_of, values_of
from userascode.imports.running import Report, import_items
from userascode.models import Document

if TYPE_CHECKING:
    from userascode.params import NewRecordEntry, NewTextEntry

# How long a hook tries to reach the server: an agent waits for it.
HOOK_SECONDS = 5.0


class _Group(click.Group):
    """Commands whose errors are told in one line, with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (UserAsCodeError, FileNotFoundError, PermissionError, UnicodeError) as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:  # how one ends `alerts --follow`
            sys.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", envvar="UAC_URL", help="Address of the server.")
@click.option("--key", envvar="UAC_KEY", help="Key of the API; better set by `login`.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON, one a line.")
@click.version_option(package_name="userascode")
@click.pass_context
def main(context: click.Context, url: str | None, key: str | None, as_json: bool) -> None:
    """Use the memory of a UaC server."""
    context.obj = _Session(url, key, as_json)


class _Session:
    """The server that the commands use, and how they print."""

    def __init__(self, url: str | None, key: str | None, as_json: bool) -> None:
        self.url, self.key, self.as_json = url, key, as_json

    def client(self) -> Client:
        """Return a client of the server that the options, the environment or a login name."""
        return Client(*self.address())

    def address(self) -> tuple[str, str]:
        """Return the server's address and the key; raises ClickException if one is missing."""
        url, key = login.load(self.url, self.key)
        if not url or not key:
            raise click.ClickException("Log in first: userascode login.")
        return url, key

    def user(self, user_id: str) -> User:
        """Return a user of that server."""
        return self.client().user(user_id)

    def show(self, answer: Model, text: str) -> None:
        """Print an answer: as JSON, or as the text for people."""
        click.echo(_json(answer) if self.as_json else text)

    def show_rows(self, answers: Iterable[Model], *columns: str) -> None:
        """Print answers: as JSON, or as a table of some of their fields."""
        if self.as_json:
            for answer in answers:
                click.echo(_json(answer))
            return
        table = Table(*columns)
        for answer in answers:
            table.add_row(*(_cell(getattr(answer, column)) for column in columns))
        Console().print(table)


session = click.make_pass_decorator(_Session)


def _json(answer: Model) -> str:
    return answer.model_dump_json(by_alias=True)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


@main.command("login")
@click.option("--url", prompt="Address of the server")
@click.option("--key", prompt="Key of the API", hide_input=True)
def log_in(url: str, key: str) -> None:
    """Keep the address and the key: in the system's keyring, or in a file of yours alone."""
    with Client(url, key) as client:
        client.users.list(page_size=1).all()
    click.echo(f"Kept in {login.store(url, key)}.")


@main.group()
def users() -> None:
    """The people whom your product remembers."""


@users.command("create")
@click.argument("user_id")
@click.option("--time-zone", help="Where the user lives, such as Europe/Berlin.")
@session
def create_user(here: _Session, user_id: str, time_zone: str | None) -> None:
    """Create a user under the id that your product uses for them."""
    created = here.client().users.create(user_id, time_zone=time_zone)
    here.show(created, f"created: {created.user_id}, time zone {created.time_zone}")


@users.command("list")
@session
def list_users(here: _Session) -> None:
    """List the users of the workspace."""
    here.show_rows(here.client().users.list(), "user_id", "time_zone", "created_at")


@main.command()
@click.argument("user_id")
@click.argument("text", required=False)
@click.option("--role", default="user", show_default=True, help="Who said the text.")
@click.option("--fact", "is_fact", is_flag=True, help="The text is a fact about the user.")
@click.option("--record", "typed", metavar="DOMAIN.CLASS", help="A record, by FIELD=VALUE.")
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="VALUE: JSON or text.")
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A document."
)
@click.option("--valid-until", metavar="DAY", help="The last day on which the text holds.")
@click.option("--wait", type=float, default=0, help="Seconds to wait until records are settled.")
@session
def add(
    here: _Session,
    user_id: str,
    text: str | None,
    role: str,
    is_fact: bool,
    typed: str | None,
    fields: tuple[str, ...],
    file: Path | None,
    valid_until: str | None,
    wait: float,
) -> None:
    """Append a message, a fact, a record or a document to a user's log.

    `-` reads the text from stdin.
    """
    if [text, typed, file].count(None) != 2:
        raise click.UsageError("Give either TEXT, --record DOMAIN.CLASS or --file FILE.")
    if file is not None:
        document = here.user(user_id).documents.add(file)
        here.show(document, _describe_document(document))
        if document.error is not None:
            sys.exit(1)
        return
    entry: NewRecordEntry | NewTextEntry
    if typed is not None:
        domain, _, name = typed.rpartition(".")
        if not domain:
            raise click.BadParameter(f"{typed!r} names no domain: write DOMAIN.CLASS.")
        entry = record(domain, name)
        entry["data"] = dict(map(_field, fields))
    else:
        content = sys.stdin.read().rstrip("\n") if text == "-" else str(text)
        entry = fact(content) if is_fact else message(content, role)
    if valid_until is not None:
        entry["valid_until"] = valid_until
    appended = here.user(user_id).add(entry, wait=wait)
    here.show_rows(appended.entries, "seq", "kind", "state")
    for item in appended.set_aside:
        click.echo(f"{item.seq}: set aside: {', '.join(item.fields)}. {item.fix}", err=True)


@main.group()
def documents() -> None:
    """The documents that were uploaded for a user; `add USER --file FILE` uploads one."""


@documents.command("list")
@click.argument("user_id")
@session
def list_documents(here: _Session, user_id: str) -> None:
    """List a user's documents, newest first."""
    columns = ("id", "name", "state", "first_seq", "last_seq")
    here.show_rows(here.user(user_id).documents.list(), *columns)


@documents.command("redact")
@click.argument("user_id")
@click.argument("document_id")
@click.option("--reason", help="Why, for the audit.")
@session
def redact_document(here: _Session, user_id: str, document_id: str, reason: str | None) -> None:
    """Delete a document, its text and everything derived from it."""
    here.user(user_id).documents.redact(document_id, reason)
    if not here.as_json:
        click.echo(f"redacted: {document_id}")


def _describe_document(document: Document) -> str:
    if document.error is not None:
        return f"{document.name} failed: {document.error.detail} {document.error.fix}"
    entries = f"entries {document.first_seq} to {document.last_seq}"
    earlier = "was uploaded before: " if document.is_duplicate else ""
    return f"{document.name}: {earlier}{entries}"


def _field(text: str) -> tuple[str, Any]:
    """Parse FIELD=VALUE; a value that is no JSON is a text."""
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} has no '=': write FIELD=VALUE.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@main.command()
@click.argument("user_id")
@click.argument("code")
@click.option("--as-of", help="A day, a moment, an entry's number or a version (v7).")
@session
def query(here: _Session, user_id: str, code: str, as_of: str | None) -> None:
    """Run Python on a user's records; print its value."""
    answer = here.user(user_id).query(code, as_of=as_of)
    here.show(answer, json.dumps(answer.value, ensure_ascii=False))


@main.command()
@click.argument("user_id")
@click.argument("words")
@click.option("--top-k", type=int, help="Number of hits.")
@session
def search(here: _Session, user_id: str, words: str, top_k: int | None) -> None:
    """Find what was said about a user, by words and by meaning."""
    hits = here.user(user_id).search(words, top_k=top_k).hits
    here.show_rows(hits, "seq", "kind", "place", "text")


@main.command()
@click.argument("user_id")
@click.argument("message_text", metavar="[MESSAGE]", required=False)
@click.option("--tokens", type=int, help="Maximum size.")
@session
def context(here: _Session, user_id: str, message_text: str | None, tokens: int | None) -> None:
    """Print the text for an agent's prompt."""
    answer = here.user(user_id).context(message_text, tokens=tokens)
    here.show(answer, answer.text)


@main.command()
@click.argument("user_id", required=False)
@click.option("--state", help="Only alerts in this state, such as open.")
@click.option("--follow", is_flag=True, help="Print alerts as they happen, until Ctrl-C.")
@click.option("--after", default="now", show_default=True, help="Follow from this event; 0: all.")
@click.option("--count", type=int, help="Stop following after so many.")
@session
def alerts(
    here: _Session,
    user_id: str | None,
    state: str | None,
    follow: bool,
    after: str,
    count: int | None,
) -> None:
    """List the alerts of a user, or of the whole workspace."""
    of = here.user(user_id).alerts if user_id else here.client().alerts
    if not follow:
        here.show_rows(of.list(state=state), "user_id", "severity", "state", "message")
        return
    for alert in itertools.islice(of.stream(after=after, state=state), count):
        here.show(alert, f"{alert.user_id}  {alert.severity}  {alert.state}  {alert.message}")


@main.command()
@click.argument("user_id")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=Path("schema.py"))
@session
def pull(here: _Session, user_id: str, file: Path) -> None:
    """Write a user's classes as a Python module, for your code and its type checker."""
    file.write_text(here.user(user_id).schema(), encoding="utf-8")
    click.echo(str(file))


@main.group()
def schema() -> None:
    """The classes that a workspace prescribes for all users: a file DOMAIN.py for each domain."""


@schema.command("push")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@session
def push_schema(here: _Session, files: tuple[Path, ...]) -> None:
    """Prescribe the classes of these files, instead of those prescribed before."""
    answer = here.client().schema.put(
        {file.stem: file.read_text(encoding="utf-8") for file in files}
    )
    here.show(answer, f"prescribed: {', '.join(sorted(answer.modules))}")


@main.group()
def constraints() -> None:
    """Read and write a user's constraints as files: NAME.py, and its tests test_NAME.py."""


FOLDER = click.Path(file_okay=False, path_type=Path)


@constraints.command("pull")
@click.argument("user_id")
@click.argument("folder", type=FOLDER)
@session
def pull_constraints(here: _Session, user_id: str, folder: Path) -> None:
    """Write all constraints of a user into a folder."""
    of = here.user(user_id).constraints
    folder.mkdir(parents=True, exist_ok=True)
    for summary in of.list():
        constraint = of.get(summary.name)
        (folder / f"{summary.name}.py").write_text(constraint.source, encoding="utf-8")
        (folder / f"test_{summary.name}.py").write_text(constraint.tests, encoding="utf-8")
        click.echo(summary.name)


@constraints.command("push")
@click.argument("user_id")
@click.argument("folder", type=FOLDER)
@session
def push_constraints(here: _Session, user_id: str, folder: Path) -> None:
    """Write the constraints of a folder; ends at the first that the gate refuses."""
    of = here.user(user_id).constraints
    others = ("test_", "_", "conftest.py")
    files = [file for file in sorted(folder.glob("*.py")) if not file.name.startswith(others)]
    if not files:
        raise click.UsageError(f"There is no constraint in {folder}: no file NAME.py.")
    for file in files:
        tests = folder / f"test_{file.name}"
        if not tests.exists():
            raise click.UsageError(f"{file} has no tests: write them to {tests}.")
        decision = of.put(
            file.stem,
            source=file.read_text(encoding="utf-8"),
            tests=tests.read_text(encoding="utf-8"),
        )
        here.show(decision, f"{file.stem}: live in version {decision.version}")


@constraints.command("test")
@click.argument("user_id")
@click.argument("name")
@click.option("--at", help="The day or moment that the constraint takes for now.")
@session
def try_constraint(here: _Session, user_id: str, name: str, at: str | None) -> None:
    """Print what a constraint would alert; opens no alert."""
    answer = here.user(user_id).constraints.run(name, at=at)
    here.show_rows(answer.alerts, "severity", "message")


@main.command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--user", "user_id", required=True, help="Whose memory it becomes.")
@click.option("--dry-run", is_flag=True, help="Only say what the source has, and send nothing.")
@click.option(
    "--prices",
    nargs=2,
    type=float,
    default=(0.25, 2),
    show_default=True,
    help="Dollars per million tokens that your model reads and writes, for the estimate.",
)
@session
def import_source(
    here: _Session, source: Path, user_id: str, dry_run: bool, prices: tuple[float, float]
) -> None:
    """Import a project (Python files), or what another memory or an assistant's account holds.

    A folder or zip with the files of a project is one. Everything else is an export of ChatGPT,
    Claude, mem0, Zep, Graphiti, Letta or LangMem. It can be repeated: nothing is added twice.
    """
    if names := project_files(source):
        if dry_run:
            click.echo("\n".join([f"a project of {len(names)} Python files:", *names]))
            return
        project = _read_project(source, names)  # first: what cannot be read creates no user
        decision = _existing_user(here, user_id).import_project(project)
        here.show(decision, f"imported as version {decision.version}")
        return
    items = items_of(values_of(source))
    report = Report()
    if dry_run:
        for _ in report.count(items):
            pass
        click.echo(_described(report, prices))
        return
    shown = 0
    for report in import_items(_existing_user(here, user_id), items):
        if (done := report.added + report.known) > shown:
            shown = done
            click.echo(f"{done} entries …", err=True)
    click.echo(_described(report, prices))
    click.echo(f"added: {report.added}, there before: {report.known}, verified: {report.verified}")


def _existing_user(here: _Session, user_id: str) -> User:
    """Return a user, who is created unless the user exists or the key is for this user alone."""
    client = here.client()
    with suppress(problems.Conflict, problems.NotFound, problems.NotAllowed):
        client.users.create(user_id)
        click.echo(f"The user {user_id!r} is new, and was created.", err=True)
    return client.user(user_id)


def project_files(source: Path) -> list[str]:
    """Return the names of a project's Python files; nothing if the source is an export.

    An export may hold Python, such as what somebody attached to a message: where entries are found,
    it is an export, unless it has the manifest or the domains of a project.
    """
    paths = [PurePosixPath(name) for name in names_of(source)]
    python = [str(path) for path in paths if path.suffix == ".py"]
    is_ours = any(path.name == "manifest.py" or "domains" in path.parts[:-1] for path in paths)
    if not python or is_ours:
        return python
    items = items_of(values_of(source))
    return [] if any(not isinstance(item, Skipped) for item in items) else python


def _read_project(source: Path, names: Iterable[str]) -> dict[str, str] | bytes:
    if zipfile.is_zipfile(source):
        return source.read_bytes()
    folder = source if source.is_dir() else source.parent
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def _described(report: Report, prices: tuple[float, float]) -> str:
    """Return what an export has, what is not taken over, and what a model will cost."""
    read, written = report.tokens
    per_read, per_written = prices
    cost = (read * per_read + written * per_written) / 1_000_000
    rows = [
        ("entries", f"{report.entries} ({_counts(report.kinds)})"),
        ("conversations", str(len(report.sessions))),
        ("from, to", f"{report.first or '?'}, {report.last or '?'}"),
        ("not taken over", _counts(report.skipped) or "nothing"),
    ]
    if report.known < report.entries:
        tokens = f"about {read:,} tokens read and {written:,} written"
        rows.append(("language model", f"{tokens}, ${cost:.2f}"))
    return "\n".join(f"{name}: {text}" for name, text in rows)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counter.items()))


@main.command("mcp")
@click.option("--user", "user_id", help="Limit the tools to this user; they then take no user_id.")
@click.option(
    "--mcp-url", envvar="UAC_MCP_URL", help="Address of the MCP process, if it has one of its own."
)
@session
def serve_mcp(here: _Session, user_id: str | None, mcp_url: str | None) -> None:
    """Serve MCP on standard input and output, for an agent on this machine.

    Passes all messages to the server's MCP process. Where a server runs without that process, its
    operator has `manage.py mcp`.
    """
    try:
        import anyio

        from userascode import mcp_proxy
    except ImportError as error:
        raise click.ClickException(f"{error}: install userascode[mcp].") from error
    url, key = here.address()
    path = "" if user_id is None else f"/users/{quote(user_id, safe='')}"
    anyio.run(mcp_proxy.serve, f"{(mcp_url or url).rstrip('/')}{path}/mcp", key)


@main.command("hook")
@click.argument("host", default="", metavar=f"[{'|'.join(HOSTS)}]")
@click.option("--user", "user_id", default="", help="Whose memory the agent has.")
@session
def run_hook(here: _Session, host: str, user_id: str) -> None:
    """Answer a hook of a coding agent, whose JSON is on standard input."""
    try:
        # Not left to Click, whose status 2 tells an agent to block what its user has typed.
        if host not in HOSTS or not user_id:
            raise click.UsageError(f"Give --user, and one of: {', '.join(HOSTS)}.")
        url, key = here.address()
        with Client(url, key, timeout=HOOK_SECONDS) as client:
            output = respond(client.user(user_id), HOSTS[host], json.load(sys.stdin.buffer))
    except (UserAsCodeError, click.ClickException, ValueError) as error:
        # The agent goes on without its memory.
        click.echo(f"userascode: {error}", err=True)
        return
    if output:
        click.echo(json.dumps(output))
