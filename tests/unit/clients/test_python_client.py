"""The Python client against the OpenAPI document, and against servers that misbehave."""

import asyncio
import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from standardwebhooks.webhooks import Webhook
from userascode import (
    AsyncClient,
    Client,
    Problem,
    StillRunning,
    models,
    problems,
    record,
    webhooks,
)
from userascode.errors import ConfigurationError, ConnectionFailed, UnexpectedAnswer

from memory.kernel.http.problems import PROBLEMS
from tests.client_operations import METHODS, argument, arguments_of, call

ROOT = Path(__file__).parents[3]
URL = "https://uac.example.com"
EXAMPLES: Mapping[str, Any] = json.loads(
    (ROOT / "memory" / "kernel" / "http" / "examples.json").read_text()
)
# Parameters that the client sets by itself.
OWN = {"cursor", "page", "Idempotency-Key"}
# Operations that wait for their end by themselves: by `wait` at first, and then by polling.
WAITS_ITSELF = {"wait"}
READ_BY_POST = ("/search", "/context")

Answers = Callable[[httpx.Request], httpx.Response]


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(
        (ROOT / "docs" / "openapi.yaml").read_text(), yaml.CSafeLoader
    )
    return loaded


def described() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def fields_of(schema: Mapping[str, Any]) -> set[str]:
    """Return the fields of a body, in all its forms."""
    if "$ref" in schema:
        return fields_of(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    forms = [form for several in ("oneOf", "anyOf") for form in schema.get(several, ())]
    return set(schema.get("properties", ())).union(*map(fields_of, forms))


def client(answers: Answers, **options: Any) -> Client:
    return Client(URL, "key", transport=httpx.MockTransport(answers), **options)


def problem(status: int, name: str, **members: Any) -> httpx.Response:
    body = {"type": f"urn:uac:problem:{name}", "title": "", "status": status, "detail": name}
    headers = {"Content-Type": "application/problem+json", "Retry-After": "0"}
    return httpx.Response(status, json={**body, **members}, headers=headers)


def answered(*answers: httpx.Response | Exception) -> tuple[list[httpx.Request], Answers]:
    """Return a server that gives these answers in turn, and the requests that it receives."""
    requests: list[httpx.Request] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        following = left.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    return requests, answer


def user_detail(**fields: Any) -> httpx.Response:
    return httpx.Response(
        200,
        json={**EXAMPLES["GET /v1/users/{user_id}"]["answer"], **fields},
        headers={"ETag": '"1"'},
    )


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userascode.protocol.FIRST_DELAY", 0.001)


def test_every_operation_and_every_parameter_has_a_method_and_an_argument() -> None:
    missing = {}
    for name, operation in described():
        parameters = {
            one["name"].lower().replace("-", "_")
            for one in operation.get("parameters", ())
            if one["name"] not in OWN and one["name"] + one["in"] != "user_idpath"
        }
        forms = operation.get("requestBody", {}).get("content", {})
        if name != "POST /v1/users/{user_id}/entries":  # entries are typed dicts
            parameters |= fields_of(forms.get("application/json", {}).get("schema", {}))
        arguments = arguments_of(name)
        if "timeout" in arguments:
            parameters -= WAITS_ITSELF
        if name.endswith("{collection}"):
            parameters -= {"domain"}  # "domain.collection"
        absent = {argument(name, one) for one in parameters} - arguments
        if absent:
            missing[name] = absent

    assert METHODS.keys() == {name for name, _ in described()}
    assert missing == {}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("operation", METHODS)
def test_client_sends_and_reads_recorded_answers(operation: str, is_async: bool) -> None:
    # Given the recorded request and answer of an operation
    example = EXAMPLES[operation]
    names = example.get("parameters", {})
    requests, answers = answered(recorded_answer(example))
    caller = AsyncClient if is_async else Client
    user: Any = caller(URL, "key", transport=httpx.MockTransport(answers))
    # When it is called
    failed = example["status"] >= 400
    given = example.get("body") or example.get("file")
    if failed:
        with pytest.raises(Problem) as caught:
            call(user, operation, names, given)
        answer = json.loads(caught.value.answer.model_dump_json(exclude_unset=True))
    else:
        answer = call(user, operation, names, given)
    # Then the request is the recorded one, with a key if it changes anything
    [request] = requests
    method, _, template = operation.partition(" ")
    in_path = {name: value for name, value in names.items() if f"{{{name}}}" in template}
    in_path.setdefault("user_id", "ada")
    assert request.method == method
    assert request.url.path.rstrip("/") == template.format(**in_path)
    assert ("Idempotency-Key" in request.headers) is (
        method != "GET" and not template.endswith(READ_BY_POST)
    )
    if file := example.get("file"):
        assert f'filename="lease.txt"\r\nContent-Type: text/plain\r\n\r\n{file}\r\n'.encode() in (
            request.content
        )
    else:
        sent = json.loads(request.content or b"null")
        body = example.get("body") or None
        assert sent == ({"entries": [body]} if body and "kind" in body else body)
    # And the answer is the recorded one
    expected = example.get("answer")
    if isinstance(answer, dict) and isinstance(expected, dict):
        assert comparable(answer).items() <= comparable(expected).items()


def recorded_answer(example: Mapping[str, Any]) -> httpx.Response:
    if "answer" not in example:
        return httpx.Response(example["status"], content=b"PK")
    answer = dict(example["answer"])
    if "next" in answer and "previous" in answer:
        answer["next"] = None  # one page
    if "records" in answer and "next" in answer:
        answer["next"] = None
    is_problem = example["status"] >= 400
    kind = "application/problem+json" if is_problem else "application/json"
    status = 200 if example["status"] == 202 else example["status"]  # has ended
    return httpx.Response(status, json=answer, headers={"Content-Type": kind})


def comparable(value: Any) -> Any:
    """Return JSON in which one moment has one form."""
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return json.dumps([comparable(inner) for inner in value], sort_keys=True)
    if isinstance(value, str):
        return value.replace("+00:00", "Z")
    return value


def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    package = ROOT / "clients" / "python" / "src" / "userascode"

    subprocess.run(
        [sys.executable, ROOT / "clients" / "python" / "generate.py", tmp_path], check=True
    )

    written = list(tmp_path.rglob("*.py"))
    assert len(written) >= 9
    for path in written:
        committed = package / path.relative_to(tmp_path)
        assert path.read_text() == committed.read_text(), f"{committed}: make generate"


def test_every_problem_type_has_a_class() -> None:
    assert problems.BY_NAME.keys() == {one.name for one in PROBLEMS}


def test_a_problem_names_the_fields_and_the_fix() -> None:
    errors = {"entries": [{}, {"kind": ["Choose one."]}], "wait": ["Not a number."]}
    requests, answers = answered(problem(400, "invalid-fields", errors=errors, request_id="r-1"))

    with pytest.raises(problems.InvalidFields) as caught:
        client(answers).user("ada").add("hello")

    assert caught.value.fields == {"entries.1.kind": ["Choose one."], "wait": ["Not a number."]}
    assert caught.value.request_id == "r-1"
    assert "entries.1.kind: Choose one." in str(caught.value)
    assert len(requests) == 1


def test_a_problem_type_of_a_newer_server_is_a_problem() -> None:
    _, answers = answered(problem(418, "teapot"))

    with pytest.raises(Problem) as caught:
        client(answers).user("ada").details()

    assert caught.value.type == "urn:uac:problem:teapot"


def test_values_and_fields_of_a_newer_server_are_kept() -> None:
    _, answers = answered(user_detail(mood="good"))

    user = client(answers).user("ada").details()

    assert user.model_extra == {"mood": "good"}
    assert user.etag == '"1"'


@pytest.mark.parametrize(
    "first",
    [
        problem(429, "too-many-requests"),
        problem(503, "unavailable"),
        problem(409, "in-progress"),
        httpx.Response(502, text="Bad Gateway"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
    ],
    ids=["429", "503", "in-progress", "502", "refused", "slow"],
)
def test_a_write_is_repeated_with_its_key(first: httpx.Response | Exception) -> None:
    appended = httpx.Response(202, json=EXAMPLES["POST /v1/users/{user_id}/entries"]["answer"])
    requests, answers = answered(first, appended)

    client(answers).user("ada").add(record("travel", "Trip", to="Rome"))

    keys = [request.headers["Idempotency-Key"] for request in requests]
    assert len(keys) == 2
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (problem(409, "conflict"), problems.Conflict),
        (problem(500, "server-error"), problems.ServerError),
        (httpx.Response(404, text="<html>"), UnexpectedAnswer),
        (httpx.Response(200, text="<html>"), UnexpectedAnswer),
    ],
)
def test_final_answer_is_not_repeated(answer: httpx.Response, expected: type[Exception]) -> None:
    requests, answers = answered(answer)

    with pytest.raises(expected):
        client(answers).user("ada").details()

    assert len(requests) == 1


def test_client_waits_as_told_within_its_timeout() -> None:
    busy = problem(429, "too-many-requests", limit="requests")
    busy.headers["Retry-After"] = "60"
    requests, answers = answered(busy)

    with pytest.raises(problems.TooManyRequests) as caught:
        client(answers, timeout=5).user("ada").details()

    assert (caught.value.retry_after, caught.value.limit, len(requests)) == (60, "requests", 1)


def test_a_server_that_is_not_there_is_named() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ConnectionFailed, match=r"uac\.example\.com"):
        client(refuse, timeout=0.05).user("ada").details()


def accepted(location: str, **progress: Any) -> httpx.Response:
    run = {**EXAMPLES["GET /v1/runs/{run_id}"]["answer"], "finished_at": None, **progress}
    return httpx.Response(202, json=run, headers={"Location": location, "Retry-After": "0"})


def test_a_run_that_takes_long_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    run = EXAMPLES["GET /v1/runs/{run_id}"]["answer"]
    decision = EXAMPLES["PUT /v1/users/{user_id}/constraints/{name}"]["answer"]
    requests, answers = answered(
        accepted("/v1/runs/r-1/"),
        httpx.Response(200, json={**run, "finished_at": None}),
        httpx.Response(200, json=run),
        httpx.Response(200, json=decision),
    )

    put = client(answers).user("ada").constraints.put("late", source="s", tests="t")

    assert isinstance(put, models.Decision)
    assert [request.url.path for request in requests[1:3]] == ["/v1/runs/r-1/"] * 2
    first, last = requests[0], requests[-1]
    assert first.headers["Idempotency-Key"] == last.headers["Idempotency-Key"]
    assert first.content == last.content


def test_a_run_that_takes_too_long_goes_on() -> None:
    _, answers = answered(accepted("/v1/runs/r-1/"))

    with pytest.raises(StillRunning) as caught:
        client(answers).user("ada").query("1", timeout=0)

    assert caught.value.location == "runs/r-1/"


def test_the_key_is_sent_to_no_other_server() -> None:
    requests, answers = answered(accepted("https://evil.example/v1/runs/r-1/"))

    with pytest.raises(UnexpectedAnswer):
        client(answers).user("ada").query("1")

    assert len(requests) == 1


def test_lists_are_read_to_their_end() -> None:
    page = EXAMPLES["GET /v1/users"]["answer"]
    requests, answers = answered(
        httpx.Response(200, json={**page, "next": f"{URL}/v1/users/?cursor=abc&page_size=2"}),
        httpx.Response(200, json={**page, "next": None}),
    )

    users = client(answers).users.list(page_size=2).all()

    assert len(users) == 2 * len(page["results"])
    assert dict(requests[1].url.params) == {"cursor": "abc", "page_size": "2"}


def test_alerts_are_streamed_from_where_the_last_answer_ended() -> None:
    feed = EXAMPLES["GET /v1/users/{user_id}/events"]["answer"]
    requests, answers = answered(
        httpx.Response(200, json={**feed, "results": [], "next": 7, "waited": True}),
        httpx.Response(200, json={**feed, "next": 9}),
    )

    alert = next(client(answers).user("ada").alerts.stream(severity="critical"))

    assert alert.id == feed["results"][0]["id"]
    assert [request.url.params["after"] for request in requests] == ["now", "7"]
    assert {request.url.params["severity"] for request in requests} == {"critical"}


def test_names_of_any_script_are_one_part_of_the_path() -> None:
    requests, answers = answered(user_detail())

    client(answers).user("https://idp/ä?b").details()

    assert requests[0].url.raw_path == b"/v1/users/https%3A%2F%2Fidp%2F%C3%A4%3Fb/"


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UAC_KEY", raising=False)
    monkeypatch.setenv("UAC_URL", URL)

    with pytest.raises(ConfigurationError, match="UAC_KEY"):
        Client()


def test_webhooks_are_verified() -> None:
    secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
    signed, body = Webhook(secret), '{"type": "alert.opened"}'
    now = datetime.datetime.now(tz=datetime.UTC)
    headers = {
        "Webhook-Id": "m-1",
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": signed.sign("m-1", now, body),
    }

    assert webhooks.verify(secret, body.encode(), headers) == {"type": "alert.opened"}
    with pytest.raises(webhooks.InvalidSignature):
        webhooks.verify(secret, body.encode() + b" ", headers)


def test_client_serves_many_tasks() -> None:
    async def many() -> list[models.UserDetail]:
        def answer(request: httpx.Request) -> httpx.Response:
            return user_detail(user_id=request.url.path.split("/")[3])

        transport = httpx.MockTransport(answer)
        async with AsyncClient(URL, "key", transport=transport) as caller:
            users = [caller.user(f"u-{number}").details() for number in range(20)]
            return await asyncio.gather(*users)

    assert [one.user_id for one in asyncio.run(many())] == [f"u-{n}" for n in range(20)]
