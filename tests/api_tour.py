"""One request of every operation of the API, against a whole server.

It leaves a workspace with an instance of everything, whose names it returns. Its requests and
answers are the examples of the OpenAPI document: `python -m tests.api_tour` records them again.
"""

import datetime
import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

from deploy.embedded.system import System
from tests.system import LOCAL_WEBHOOKS, running_system
from tests.waiting import eventually, scaled

# Separates the parts of a form.
BOUNDARY = "part"
EXAMPLES = Path(__file__).parents[1] / "memory" / "kernel" / "http" / "examples.json"
# Settings of the server: its endpoints may be on this machine, and nobody waits long.
ENVIRONMENT = {
    "UAC_MAX_WAIT_SECONDS": "1",
    "UAC_SANDBOX_RUNNER": "process",
    "UAC_ENCRYPTION_KEYS": "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=",
    **LOCAL_WEBHOOKS,
}
RULE = '''import datetime
from collections.abc import Iterator

from uac import Alert, warning

from domains.work.state import tasks


def check(today: datetime.date) -> Iterator[Alert]:
    """A task must not be late."""
    for task in tasks:
        if task.days > 0:
            yield warning(f"{task.name} is {task.days} days late", evidence=[task])
'''
SCHEMA = """\
from dataclasses import dataclass

from uac import Record


@dataclass(kw_only=True)
class Trip(Record):
    destination: str
    nights: int | None = None
"""
TESTS = """import datetime

from uac.testing import run_check

from constraints import late
from domains.work.schema import Task

TODAY = datetime.date(2026, 1, 1)


def test_it_speaks() -> None:
    assert len(run_check(late, today=TODAY, tasks=[Task(key="a", name="a", days=3)])) == 1


def test_it_is_silent() -> None:
    assert run_check(late, today=TODAY, tasks=[Task(key="a", name="a", days=0)]) == []
"""
LIBRARY = "budget_exceeded"
# More alerts at once than the limit allows: the constraint is paused.
TOO_MANY = 120
# Operations that use POST, but change nothing.
READS = ("/search", "/context", "/query")
# Maximum length of a list or text of an answer in an example.
LONGEST_LIST, LONGEST_TEXT = 2, 400


@dataclass
class Tour:
    """Requests and answers by operation, and the names of everything that now exists."""

    base_url: str
    key: str
    # "GET /v1/users/{user_id}" → the example.
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    # Writes that were sent twice.
    replayed: set[str] = field(default_factory=set)
    # "/v1/users/{user_id}" → the parameters of the path.
    names: dict[str, dict[str, str]] = field(default_factory=dict)

    def ask(
        self,
        method: str,
        template: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        least: bool = False,
        file: bytes | None = None,
        **names: Any,
    ) -> Any:
        """Send a request and record it as the example of its operation; return the answer.

        With `least`, it is recorded only if there is no example yet, whatever the answer. A `file`
        is uploaded instead of a body.
        """
        path = f"/v1/{template}"
        operation = path.removesuffix("/")  # as the document names it
        address = path
        for name, value in names.items():
            address = address.replace(f"{{{name}}}", urllib.parse.quote(str(value)))
        url = self.base_url + address + (f"?{urllib.parse.urlencode(query)}" if query else "")
        # Every write is sent twice with the same key, and done once.
        named = method != "GET" and not operation.endswith(READS)
        key = {"Idempotency-Key": f"{method} {template} {len(self.sent)}"} if named else {}
        self.sent.append(path)
        sent = body if file is None else _form(file)
        status, answer, _ = self._send(method, url, sent, key)
        assert least or status < 300, f"{method} {url}: {status} {answer}"
        if status == 202 and "runner" in answer and (query or {}).get("wait") != "0":
            self.until("end of the run", lambda: self._is_done(answer["id"]))
            status, answer, _ = self._send(method, url, sent, key)
        if named and status < 300:
            again, _, headers = self._send(method, url, sent, key)
            assert again < 300, f"{method} {url} again: {again}"
            assert headers["Idempotent-Replayed"] == "true", f"{method} {url} is done twice"
            self.replayed.add(f"{method} {operation}")
        self.names[operation] = {name: str(value) for name, value in names.items()}
        example: dict[str, Any] = {"status": status, "parameters": {**names, **(query or {})}}
        if body is not None:
            example["body"] = body
        if file is not None:
            example["file"] = file.decode()
        if answer is not None:
            example["answer"] = answer
        if not least or f"{method} {operation}" not in self.examples:
            self.examples[f"{method} {operation}"] = example
        return answer

    def _is_done(self, run_id: str) -> bool:
        _, run, _ = self._send("GET", f"{self.base_url}/v1/runs/{run_id}/", None, {})
        return bool(run["status"] == "done")

    def _send(
        self, method: str, url: str, body: Any, headers: Mapping[str, str]
    ) -> tuple[int, Any, Message]:
        is_form = isinstance(body, bytes)
        form = f"multipart/form-data; boundary={BOUNDARY}"
        request = urllib.request.Request(
            url,
            method=method,
            data=body if body is None or is_form else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                **(
                    {}
                    if body is None
                    else {"Content-Type": form if is_form else "application/json"}
                ),
                **headers,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=scaled(120)) as response:
                status, content, told = response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            status, content, told = error.code, error.read(), error.headers
        is_json = "json" in told.get("Content-Type", "")
        return status, json.loads(content) if is_json else None, told

    def until(self, what: str, look: Any) -> Any:
        """Poll until something is there."""
        found: Any = None

        def looked() -> Any:
            nonlocal found
            found = look()
            return found

        assert eventually(looked, 120), f"there is no {what}"
        return found


def key_of(server: System, workspace: str) -> str:
    """Return a key of a workspace with every permission."""
    scopes = [text for scope in ("read", "write", "manage") for text in ("--scope", scope)]
    return str(json.loads(server.manage("create_workspace", workspace, *scopes))["api_key"])


def take(base_url: str, key: str) -> Tour:
    """Call every operation on an empty workspace, with a key that may do everything."""
    tour = Tour(base_url, key)
    user: dict[str, Any] = {"user_id": "ada"}
    _users(tour, user)
    _project(tour, user)
    _workspace(tour, user)
    _alerts(tour, user)
    _webhooks(tour)
    _schema(tour)
    _documents(tour)
    return tour


def _users(tour: Tour, user: dict[str, Any]) -> None:
    made = {"user_id": "ada", "time_zone": "Europe/Berlin", "metadata": {"plan": "pro"}}
    tour.ask("POST", "users/", made)
    for name in ("bob", "anonymous-1", "carol"):
        tour.ask("POST", "users/", {"user_id": name})
        tour.ask("POST", "users/{user_id}/entries/", _said("I am new here."), user_id=name)
    tour.ask("GET", "users/")
    tour.ask("PATCH", "users/{user_id}/", {"metadata": {"plan": "team"}}, **user)
    tour.ask("POST", "users/{user_id}/merge/", {"from": "anonymous-1"}, user_id="bob")
    tour.ask("GET", "users/{user_id}/merge/", user_id="anonymous-1")
    erased = tour.ask("DELETE", "users/{user_id}/", query={"reason": "asked for"}, user_id="carol")
    tour.ask("GET", "erasures/{erasure_id}/", erasure_id=erased["id"])
    tour.ask("GET", "users/{user_id}/", **user)


# What the feed reports of entries.
ENTRY_EVENTS = ("rejected", "set_aside")


def _form(content: bytes) -> bytes:
    """Return a form with one file."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="lease.txt"'
    return head.encode() + b"\r\n\r\n" + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def _documents(tour: Tour) -> None:
    one: dict[str, Any] = {"user_id": "bob"}
    uploaded = tour.ask("POST", "users/{user_id}/documents/", file=b"Pets are allowed.", **one)
    of_document = {**one, "document_id": uploaded["id"]}
    address = "users/{user_id}/documents/{document_id}/"
    tour.until("text of the document", lambda: tour.ask("GET", address, **of_document)["last_seq"])
    tour.ask("GET", "users/{user_id}/documents/", **one)
    tour.ask("GET", f"{address}content/", **of_document)
    tour.ask("DELETE", address, query={"reason": "asked for"}, **of_document)


def _said(content: str) -> dict[str, Any]:
    return {"kind": "message", "role": "user", "content": content}


def _task(key: str, days: int | str) -> dict[str, Any]:
    data = {"name": key, "days": days}
    return {"kind": "record", "domain": "work", "type": "Task", "key": key, "data": data}


def _project(tour: Tour, user: dict[str, Any]) -> None:
    tour.ask("POST", "users/{user_id}/entries/", _said("Call me on my old number."), **user)
    tour.ask("GET", "users/{user_id}/entries/{seq}/redaction/", seq=1, **user)
    redacted = tour.ask(
        "DELETE", "users/{user_id}/entries/{seq}/", query={"reason": "asked for"}, seq=1, **user
    )
    tour.ask("GET", "users/{user_id}/redactions/{seq}/", seq=redacted["seq"], **user)
    tour.until(
        "end of the redaction",
        lambda: tour.ask("GET", "users/{user_id}/redactions/{seq}/", seq=redacted["seq"], **user)[
            "finished_at"
        ],
    )
    told = {"entries": [_said("The tax return is late."), _task("tax-return", 3)]}
    tour.ask("POST", "users/{user_id}/entries/", told, **user)
    tour.until("version", lambda: tour.ask("GET", "users/{user_id}/", **user)["head"])
    tour.ask("GET", "users/{user_id}/entries/", **user)
    tour.ask("GET", "users/{user_id}/entries/{seq}/", seq=3, **user)
    rule = {"source": RULE, "tests": TESTS}
    tour.ask(
        "PUT",
        "users/{user_id}/constraints/{name}/",
        rule,
        name="late",
        **user,
    )
    note = {"edits": [{"op": "note", "text": "The tax return is late.", "sources": [2]}]}
    tour.ask("POST", "users/{user_id}/checkpoints/", note, **user)
    tour.ask(
        "POST",
        "users/{user_id}/constraints/{name}/run/",
        {"at": "2027-03-01"},
        name="late",
        **user,
    )
    files = {
        "memory.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass Pet:\n"
        "    name: str\n\n\npet = Pet(name='Rex')\n"
    }
    tour.ask("POST", "users/{user_id}/import/", {"files": files}, **user)
    tour.ask("GET", "users/{user_id}/checkpoints/", **user)
    tour.ask("GET", "users/{user_id}/checkpoints/{version}/", version=1, **user)
    tour.ask(
        "GET",
        "users/{user_id}/checkpoints/{version}/files/{path}",
        version=1,
        path="domains/work/schema.py",
        **user,
    )
    tour.ask("GET", "users/{user_id}/checkpoints/{version}/restore/", version=2, **user)
    tour.ask(
        "POST",
        "users/{user_id}/checkpoints/{version}/restore/",
        {"reason": "The pet is somebody else's."},
        version=3,
        **user,
    )
    tour.ask(
        "POST",
        "users/{user_id}/outcomes/reopen/",
        {"entries": [2], "reason": "It was settled by the wrong model."},
        **user,
    )
    tour.ask("GET", "users/{user_id}/diff/", query={"since": "v1"}, **user)
    for name in ("manifest", "state", "forecast", "constraints", "export", "subject-access"):
        tour.ask("GET", f"users/{{user_id}}/{name}/", **user)
    tour.ask(
        "GET",
        "users/{user_id}/state/{domain}/{collection}/",
        domain="work",
        collection="tasks",
        **user,
    )
    tour.ask("GET", "users/{user_id}/constraints/{name}/", name="late", **user)
    code = {"code": "[task.name for task in tasks if task.days > 0]"}
    asked = tour.ask("POST", "users/{user_id}/query/", code, **user)
    tour.ask("POST", "users/{user_id}/ask/", {"question": "What is late?"}, least=True, **user)
    said = [{"role": "user", "content": "When is the tax return due?"}]
    tour.ask("POST", "users/{user_id}/search/", {"query": "Is it late?", "messages": said}, **user)
    tour.ask("POST", "users/{user_id}/context/", {"query": "What is late?", "tokens": 500}, **user)
    tour.ask("GET", "users/{user_id}/runs/", **user)
    tour.ask("GET", "runs/{run_id}/", run_id=asked["id"])
    waiting = tour.ask(
        "POST", "users/{user_id}/query/", {"code": "1 + 1"}, query={"wait": "0"}, **user
    )
    tour.examples["POST /v1/users/{user_id}/query"] = {
        "status": 200,
        "parameters": {},
        "body": code,
        "answer": asked,
    }
    tour.ask("POST", "runs/{run_id}/cancel/", run_id=waiting["id"], least=True)
    tour.ask("POST", "runs/{run_id}/retry/", run_id=waiting["id"], least=True)


def _workspace(tour: Tour, user: dict[str, Any]) -> None:
    tour.ask("GET", "constraint-library/")
    tour.ask("GET", "constraint-library/{name}/", name=LIBRARY)
    constraint: dict[str, Any] = {"name": LIBRARY}
    tour.ask("POST", "constraints/", {"library": LIBRARY})
    tour.until(
        "verdict",
        lambda: tour.ask("GET", "constraints/{name}/", **constraint)["versions"][0]["judged_at"],
    )
    text = tour.examples["GET /v1/constraint-library/{name}"]["answer"]
    version = {"source": text["source"], "tests": text["tests"]}
    tour.ask("POST", "constraints/{name}/versions/", version, **constraint)
    number: dict[str, Any] = {**constraint, "number": 1}
    tour.ask("GET", "constraints/{name}/versions/{number}/", **number)
    test = tour.ask(
        "POST", "constraints/{name}/versions/{number}/backtests/", {"days": 30}, **number
    )
    tour.until(
        "end of the backtest",
        lambda: tour.ask("GET", "backtests/{backtest_id}/", backtest_id=test["id"])["finished_at"],
    )
    tour.ask("GET", "backtests/")
    own = tour.ask(
        "POST", "users/{user_id}/backtests/", {"constraint": "constraints/late.py"}, **user
    )
    tour.ask("POST", "backtests/{backtest_id}/cancel/", backtest_id=own["id"], least=True)
    tour.ask("POST", "constraints/{name}/versions/{number}/approve/", **number)
    tour.ask("PATCH", "constraints/{name}/", {"percentage": 50}, **constraint)
    tour.ask("GET", "constraints/")
    tour.ask("GET", "constraints/{name}/coverage/", **constraint)


def _alerts(tour: Tour, user: dict[str, Any]) -> None:
    (alert,) = tour.until(
        "alert", lambda: tour.ask("GET", "users/{user_id}/alerts/", **user)["results"]
    )
    tour.ask("GET", "alerts/")
    one: dict[str, Any] = {"alert_id": alert["id"]}
    tour.ask("POST", "alerts/{alert_id}/acknowledge/", {"note": "Seen."}, **one)
    tour.ask("POST", "alerts/{alert_id}/snooze/", {"note": "Next week."}, **one)
    tour.ask("POST", "alerts/{alert_id}/reopen/", {"note": "It matters now."}, **one)
    tour.ask("POST", "alerts/{alert_id}/feedback/", {"verdict": "useful"}, **one)
    tour.ask("GET", "constraint-precision/")
    tour.ask("GET", "alerts/{alert_id}/", **one)
    tour.ask("POST", "alerts/{alert_id}/resolve/", {"reason": "The tax return was sent."}, **one)
    late = [_task(f"task-{number}", 1) for number in range(TOO_MANY)]
    bob: dict[str, Any] = {"user_id": "bob"}
    tour.until(
        "end of the merge",
        lambda: tour.ask("GET", "users/{user_id}/merge/", user_id="anonymous-1")["finished_at"],
    )
    kept = dict(tour.examples)
    entries = "users/{user_id}/entries/"
    named: dict[str, Any] = {**bob, "name": "late"}
    tour.ask("POST", entries, _task("task", 0), **bob)
    tour.until("version", lambda: tour.ask("GET", "users/{user_id}/", **bob)["head"])
    rule = {"source": RULE, "tests": TESTS}
    tour.ask("PUT", "users/{user_id}/constraints/{name}/", rule, **named)
    tour.ask("POST", entries, {"entries": late}, **bob)
    misplaced = {**_task("chore", 1), "type": "Chore", "collection": "tasks"}
    tour.ask("POST", entries, {"entries": [_task("insurance", "soon"), misplaced]}, **user)
    tour.examples.update(kept)
    (paused,) = tour.until(
        "paused constraint", lambda: tour.ask("GET", "paused-constraints/")["results"]
    )
    feed = {"after": "0"}
    tour.until(
        "rejected entry, and value set aside",
        lambda: all(tour.ask("GET", "events/", query=feed)[name] for name in ENTRY_EVENTS),
    )
    tour.ask("GET", "users/{user_id}/events/", query=feed, **user)
    why = {"reason": "They are real."}
    tour.ask("POST", "paused-constraints/{paused_id}/resume/", why, paused_id=paused["id"])
    tour.ask("DELETE", "users/{user_id}/constraints/{name}/", **named)
    for path, names in tour.names.items():
        if "user_id" in names and path != "/v1/users/{user_id}/merge":
            names["user_id"] = "ada"


def _webhooks(tour: Tour) -> None:
    made = tour.ask("POST", "webhooks/", {"url": "http://127.0.0.1:1024/hook"})
    one: dict[str, Any] = {"endpoint_id": made["id"]}
    tour.ask("GET", "webhooks/")
    tour.ask("PATCH", "webhooks/{endpoint_id}/", {"least_severity": "warning"}, **one)
    tour.ask("GET", "webhooks/{endpoint_id}/", **one)
    sent = tour.ask("POST", "webhooks/{endpoint_id}/test/", {}, **one)
    delivery: dict[str, Any] = {**one, "delivery_id": sent["id"]}
    tour.until(
        "end of the delivery",
        lambda: tour.ask("GET", "webhooks/{endpoint_id}/deliveries/{delivery_id}/", **delivery)[
            "settled_at"
        ],
    )
    tour.ask("GET", "webhooks/{endpoint_id}/deliveries/", **one)
    tour.ask("POST", "webhooks/{endpoint_id}/deliveries/{delivery_id}/replay/", {}, **delivery)
    since = {"since": "2026-01-01T00:00:00Z"}
    tour.ask("POST", "webhooks/{endpoint_id}/replay/", since, **one)
    tour.ask("POST", "webhooks/{endpoint_id}/rotate-secret/", {}, **one)
    gone = tour.ask("POST", "webhooks/", {"url": "http://127.0.0.1:1025/hook"})
    tour.ask("DELETE", "webhooks/{endpoint_id}/", endpoint_id=gone["id"])
    for names in tour.names.values():
        if "endpoint_id" in names:
            names["endpoint_id"] = made["id"]


def _schema(tour: Tour) -> None:
    tour.ask("PUT", "schema/", {"modules": {"travel": SCHEMA}})
    tour.ask("GET", "schema/")


# -- The examples of the document --------------------------------------------------------------


def recorded(tour: Tour, today: datetime.date) -> dict[str, Any]:
    """Return the examples, shortened and without what is specific to this server and day."""
    found = {
        name: {**example, **({"answer": _short(example["answer"])} if "answer" in example else {})}
        for name, example in sorted(tour.examples.items())
    }
    text = json.dumps(found, ensure_ascii=False)
    text = text.replace(tour.base_url, "https://uac.example.com")
    text = re.sub(r"http://127\.0\.0\.1:(\d+)/hook", "https://example.com/hook", text)
    text = text.replace("127.0.0.1", "example.com")
    text = re.sub(r"whsec_[A-Za-z0-9+/=]+", "whsec_MDEyMzQ1Njc4OWFiY2RlZg==", text)
    return stable(json.loads(text), today)


# What the examples have in place of the day on which they were recorded.
DAY = datetime.date(2026, 1, 15)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(T[\d:.]+(?:Z|[+-]\d\d:\d\d))?")


def stable(examples: dict[str, Any], today: datetime.date) -> dict[str, Any]:
    """Return examples recorded today without what differs each time: ids, hashes, times, sizes."""
    requests = json.dumps([[one["parameters"], one.get("body")] for one in examples.values()])

    def shift(match: re.Match[str]) -> str:
        if match[1] in requests:
            return match[0]
        day = DAY + (datetime.date.fromisoformat(match[1]) - today)
        return f"{day}T09:00:00Z" if match[2] else f"{day}"

    text = json.dumps(_without_measures(examples), ensure_ascii=False)
    text = _renumber(text, _ID, lambda digest: str(uuid.UUID(digest[:32], version=4)))
    text = _renumber(text, _HASH, str)
    text = re.sub(r"\bkey:[0-9a-f]{12}\b", "key:0123456789ab", text)
    text = re.sub(r"\bmsg_[0-9a-f]{32}\b", f"msg_{'0123456789abcdef' * 2}", text)
    return dict(json.loads(_DATE.sub(shift, text)))


def _renumber(text: str, pattern: re.Pattern[str], name: Callable[[str], str]) -> str:
    """Name all matches anew, each after a hash of its place in the order of first appearance."""
    numbers = {match: number for number, match in enumerate(dict.fromkeys(pattern.findall(text)))}

    def rename(match: re.Match[str]) -> str:
        return name(hashlib.sha256(str(numbers[match[0]]).encode()).hexdigest())

    return pattern.sub(rename, text)


def _without_measures(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        if name == "timings":
            return dict.fromkeys(value, 0.1)
        return {inner: _without_measures(one, inner) for inner, one in value.items()}
    if isinstance(value, list):
        return [_without_measures(one) for one in value]
    return {"seconds": 0.1, "memory_bytes": 16 * 2**20}.get(name, value) if value else value


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_short(inner) for inner in value[:LONGEST_LIST]]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[:LONGEST_TEXT] + "…"
    return value


def main() -> None:
    """Record the examples of the document anew."""
    today = datetime.datetime.now(datetime.UTC).date()
    with running_system(environment=ENVIRONMENT) as server:
        tour = take(server.base_url, key_of(server, "first"))
    text = json.dumps(recorded(tour, today), indent=1, ensure_ascii=False)
    EXAMPLES.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
