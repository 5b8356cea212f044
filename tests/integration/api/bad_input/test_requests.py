"""Requests that are bad whatever they are about: address, method, headers, form of the body."""

import base64
import io
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from tests.integration.api.bad_input.conftest import Refused, nothing_written

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"
MESSAGE = {"kind": "message", "content": "x"}
UUID = "00000000-0000-0000-0000-000000000000"

OTHERS = ["a%20b", "x" * 200, "%ff", "%ed%a0%80", "%zz", "%f0%9f", "ädä", "nobody"]


@pytest.mark.parametrize("user_id", OTHERS)
def test_an_address_that_is_no_users(api: APIClient, refused: Refused, user_id: str) -> None:
    refused(api.get(f"/v1/users/{user_id}/"), 404, "POST /v1/users/")
    refused(api.post(f"/v1/users/{user_id}/entries/", MESSAGE), 404, "POST /v1/users/")


@pytest.mark.parametrize("user_id", ["%00", "a%0A", "a%CC%88"])
def test_an_address_that_no_user_may_have(api: APIClient, refused: Refused, user_id: str) -> None:
    refused(api.get(f"/v1/users/{user_id}/"), 404, "No user has this id")
    refused(api.post(f"/v1/users/{user_id}/entries/", MESSAGE), 404, "No user has this id")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("get", "", None),
        ("patch", "", {"metadata": {}}),
        ("post", "entries/", MESSAGE),
        ("post", "query/", {"code": "1"}),
        ("post", "ask/", {"question": "x"}),
        ("post", "search/", {"query": "x"}),
        ("post", "context/", {"query": "x"}),
        ("post", "checkpoints/", {"edits": [{"op": "delete_constraint", "name": "x"}]}),
        ("put", "constraints/x/", {"source": "x", "tests": "x"}),
        ("delete", "constraints/x/", None),
    ],
)
def test_another_workspaces_user_is_answered_like_none(
    api: APIClient, refused: Refused, method: str, path: str, body: Any
) -> None:
    def asked(user_id: str) -> tuple[Any, list[str]]:
        with CaptureQueriesContext(connection) as captured:
            answered = getattr(api, method)(f"/v1/users/{user_id}/{path}", body)
        return answered, [one["sql"].replace(user_id, "someone") for one in captured]

    asked("carl")  # what a process reads once is read by now
    theirs, done_for_none = asked("bob")
    create_user(Workspace.objects.create(name="other"), "eve", metadata=None)
    refused(theirs, 404, "no such user")
    eves, done_for_eve = asked("eve")
    # The work is the same, so the response time reveals nothing either.
    assert done_for_eve == done_for_none
    MemoryUser.objects.filter(user_id="eve").get().lanes.all().delete()
    MemoryUser.objects.filter(user_id="eve").delete()

    told, of_none = ({**one.json(), "request_id": "of each"} for one in (eves, theirs))
    assert (eves.status_code, told) == (theirs.status_code, of_none)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing/",
        "user",
        "users/ada/entry",
        "users/../ada/",
        "users/ada/entries/abc/",
        "users/ada/entries/-1/",
        "users/ada/constraints/..%2fx/",
        "runs/nope/",
        "alerts/nope/",
    ],
)
@pytest.mark.parametrize("method", ["get", "post", "put", "delete"])
def test_an_address_at_which_there_is_nothing(
    api: APIClient, refused: Refused, method: str, path: str
) -> None:
    refused(getattr(api, method)(f"/v1/{path}"), 404, "/v1/openapi.json")


@pytest.mark.parametrize(
    "path",
    [
        "users/ada/entries/0/",
        "users/ada/entries/1/",
        f"users/ada/entries/{10**30}/",
        "users/ada/checkpoints/1/",
        f"users/ada/checkpoints/{10**30}/",
        "users/ada/checkpoints/1/files/%00",
        "users/ada/checkpoints/1/files/../../etc/passwd",
        "users/ada/state/nope/trips/",
        "users/ada/state/%00/%00/",
        "users/ada/constraints/nope/",
        "users/ada/constraints/%00/",
        f"runs/{UUID}/",
        f"alerts/{UUID}/",
    ],
)
def test_a_thing_that_does_not_exist(api: APIClient, refused: Refused, path: str) -> None:
    refused(api.get(f"/v1/{path}"), 404)


@pytest.mark.parametrize("name", ["nope", "%00", "9", "a%20b"])
def test_unknown_constraint_is_not_run(api: APIClient, refused: Refused, name: str) -> None:
    refused(api.post(f"/v1/users/ada/constraints/{name}/run/", {}), 404, "no constraint")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("put", "users/ada/entries/", "GET, POST"),
        ("delete", "users/ada/entries/", "GET, POST"),
        ("patch", "users/ada/entries/1/", "GET"),
        ("put", "users/ada/", "GET, PATCH, DELETE"),
        ("get", "users/ada/query/", "POST"),
        ("post", "users/ada/manifest/", "GET"),
        ("post", "users/ada/constraints/x/", "GET, PUT, DELETE"),
        ("get", f"alerts/{UUID}/acknowledge/", "POST"),
        ("delete", f"runs/{UUID}/", "GET"),
        ("trace", "users/", "GET, POST"),
    ],
)
def test_a_method_that_the_address_does_not_take(
    api: APIClient, refused: Refused, method: str, path: str, allowed: str
) -> None:
    response = api.generic(method.upper(), f"/v1/{path}", "{}", content_type="application/json")

    refused(response, 405, f"does not allow {method.upper()}; it allows {allowed}")
    assert response["Allow"].startswith(allowed)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "nonsense",
        "application/json-patch+json",
    ],
)
def test_a_body_that_is_no_json(api: APIClient, refused: Refused, content_type: str) -> None:
    response = api.generic("POST", ENTRIES, json.dumps(MESSAGE), content_type=content_type)

    refused(response, 415, "Content-Type: application/json")


@pytest.mark.parametrize("accept", ["application/xml", "text/html", "image/*", ";;;", "\x00"])
def test_an_answer_that_nobody_serves(api: APIClient, refused: Refused, accept: str) -> None:
    refused(api.get(ENTRIES, HTTP_ACCEPT=accept), 406, "application/json", "Accept")
    refused(api.post(ENTRIES, MESSAGE, HTTP_ACCEPT=accept), 406, "application/json", "Accept")


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (None, "has no API key"),
        ("Bearer", "unknown, expired or revoked"),
        ("Bearer nonsense", "unknown, expired or revoked"),
        ("Bearer uac_000000000000_wrong", "unknown, expired or revoked"),
        ("Token uac_000000000000_wrong", "Authorization: Bearer uac_"),
        ("Basic YTpi", "Authorization: Bearer uac_"),
        ("Bearer \xe9", "unknown, expired or revoked"),
        ("Bearer uac_\x00_x", "unknown, expired or revoked"),
        ("Bearer uac_a_\x00", "unknown, expired or revoked"),
        ("Bearer uac_" + "a" * 10_000 + "_x", "unknown, expired or revoked"),
    ],
)
@pytest.mark.parametrize("path", ["users/", "users/ada/entries/", "nothing/"])
def test_a_caller_that_nobody_knows(
    refused: Refused, header: str | None, word: str, path: str
) -> None:
    stranger = APIClient(raise_request_exception=False)
    headers = {} if header is None else {"HTTP_AUTHORIZATION": header}

    for method in ("get", "post"):
        response = getattr(stranger, method)(f"/v1/{path}", **headers)
        refused(response, 401, word, "Bearer uac_")
        assert response["WWW-Authenticate"] == 'Bearer realm="uac"'


@pytest.mark.parametrize("host", ["evil.example", "a b", "", "\x00"])
def test_a_host_that_is_not_ours(api: APIClient, refused: Refused, host: str) -> None:
    refused(api.post(ENTRIES, MESSAGE, HTTP_HOST=host), 400, "headers")


def nested(depth: int) -> bytes:
    return b'{"metadata": ' + b'{"a":' * (depth - 1) + b"1" + b"}" * (depth - 1) + b"}"


BODIES: dict[str, tuple[bytes, list[str]]] = {
    "nothing but a brace": (b"{", ["not valid JSON"]),
    "cut off": (b'{"kind": "message", "content": "a', ["not valid JSON"]),
    "cut off in a character": (b'{"kind": "message", "content": "\xc3', ["UTF-8"]),
    "two objects": (b"{}{}", ["Extra data"]),
    "a trailing comma": (b'{"kind": "message",}', ["not valid JSON"]),
    "single quotes": (b"{'kind': 'message'}", ["not valid JSON"]),
    "no JSON": (b"kind=message", ["not valid JSON"]),
    "a list": (b"[]", ["must be a JSON object"]),
    "a string": (b'"x"', ["must be a JSON object"]),
    "a number": (b"1", ["must be a JSON object"]),
    "null": (b"null", ["must be a JSON object"]),
    "true": (b"true", ["must be a JSON object"]),
    "empty": (b"", ["kind"]),
    "NaN": (b'{"metadata": {"n": NaN}}', ["NaN is not a JSON number"]),
    "Infinity": (b'{"metadata": {"n": -Infinity}}', ["-Infinity is not a JSON number"]),
    "1e400": (b'{"metadata": {"n": [0, 1e400]}}', ["metadata.n[1]", "send it as a string"]),
    "10**400": (b'{"metadata": {"n": 1%s}}' % (b"0" * 400), ["metadata.n", "300 digits"]),
    "10**5000": (b'{"metadata": {"n": 1%s}}' % (b"0" * 5000), ["5001 digits", "as a string"]),
    "the same key twice": (b'{"kind": "message", "kind": "fact"}', ["'kind'", "twice"]),
    "twice, nested": (b'{"metadata": {"a": {"b": 1, "b": 1}}}', ["'b'", "twice"]),
    "NUL": (b'{"kind": "message", "content": "a\\u0000b"}', ["content has a NUL"]),
    "NUL, nested": (b'{"data": {"a": [{"b": "\\u0000"}]}}', ["data.a[0].b has a NUL"]),
    "NUL in a key": (b'{"data": {"a\\u0000": 1}}', ["data.a\\0 has a name with a NUL"]),
    "a raw NUL": (b'{"content": "a\x00b"}', ["not valid JSON"]),
    "a lone surrogate": (b'{"content": "\\ud800"}', ["content has a lone surrogate"]),
    "a lone low one": (b'{"data": {"x": ["a", "\\udfff"]}}', ["data.x[1] has a lone surrogate"]),
    "one in a key": (b'{"metadata": {"\\udc00": 1}}', ["metadata.", "a name with a lone"]),
    "surrogates swapped": (b'{"content": "\\udc00\\ud800"}', ["content has a lone surrogate"]),
    "surrogates in UTF-8": (b'{"content": "\xed\xa0\x80"}', ["UTF-8"]),
    "latin-1": (b'{"content": "\xe9"}', ["UTF-8"]),
    "a byte order mark": (b"\xef\xbb\xbf{}", ["BOM"]),
    "UTF-16": ('{"kind": "message"}'.encode("utf-16"), ["UTF-8"]),
    "33 deep": (nested(33), ["metadata.a.a", "deeper than 32 levels"]),
    "1,000 deep": (nested(1000), ["deeper than 32 levels"]),
    "100,000 deep": (nested(100_000), ["deeper than 32 levels"]),
    "100,000 open brackets": (b"[" * 100_000, ["deeper than 32 levels"]),
    "100,000 keys": (
        json.dumps({f"k{number}": number for number in range(100_000)}).encode(),
        ["Unknown field", "k0"],
    ),
    "a long unknown key": (b'{"%s": 1}' % (b"k" * 1_000_000), ["Unknown field"]),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_read(api: APIClient, refused: Refused, name: str) -> None:
    body, words = BODIES[name]

    refused(api.post(ENTRIES, body, content_type="application/json"), 400, *words)


def test_a_body_at_the_deepest_is_taken(api: APIClient, user: MemoryUser) -> None:
    body = b'{"kind": "message", "content": "x", ' + nested(32)[1:]

    assert api.post(ENTRIES, body, content_type="application/json").status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        # One fault at the end of very many names, and a long name before very many values.
        b"{" + b", ".join(b'"%d": 0' % n for n in range(300_000)) + b', "0": 1}',
        b'{"%s": [%s "\\u0000"]}' % (b"k" * 2_000_000, b"1," * 1_000_000),
    ],
    ids=["twice at the end", "deep in a long name"],
)
def test_fault_is_found_in_linear_time(api: APIClient, refused: Refused, body: bytes) -> None:
    # Quadratic work would take hours, and the test's time limit would end it.
    refused(api.post(ENTRIES, body, content_type="application/json"), 400)


def test_a_body_beyond_the_limit(api: APIClient, refused: Refused, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    for path in ("users/", "users/ada/entries/", "users/ada/query/", "users/ada/checkpoints/"):
        response = api.post(f"/v1/{path}", {**MESSAGE, "content": "x" * 1000})
        refused(response, 413, "1000 bytes")
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2**20


def cursor(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


LISTS = ["users/", "alerts/", *(f"users/ada/{name}/" for name in ("entries", "alerts", "runs"))]
PARAMETERS = [
    ("cursor", "x"),
    ("cursor", "%00"),
    ("cursor", "%ff"),
    ("cursor", "x" * 10_000),
    ("cursor", cursor("p=%00")),
    ("cursor", cursor("o=-1")),
    ("cursor", cursor("o=x")),
    ("page_size", "0"),
    ("page_size", "-1"),
    ("page_size", "501"),
    ("page_size", "ten"),
    ("page_size", "1.5"),
    ("page_size", "1e2"),
    ("page_size", "%D9%A3"),
    ("page_size", "%00"),
    ("limit", "5"),
    ("format", "xml"),
    ("%00", "1"),
    ("x" * 10_000, "1"),
]


@pytest.mark.parametrize("path", [*LISTS, "users/ada/checkpoints/"])
@pytest.mark.parametrize(("name", "value"), PARAMETERS)
def test_a_list_cannot_be_read_so(
    api: APIClient, refused: Refused, path: str, name: str, value: str
) -> None:
    response = api.get(f"/v1/{path}?{name}={value}")

    # The answer does not quote a name that cannot be shown as it is.
    refused(response, 400, name if name.isidentifier() and len(name) < 100 else "Unknown parameter")


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("users/ada/entries/", "after", "x"),
        ("users/ada/entries/", "after", "-1"),
        ("users/ada/entries/", "after", "1.5"),
        ("users/ada/entries/", "after", "1e3"),
        ("users/ada/entries/", "after", "nan"),
        ("users/ada/entries/", "after", "%00"),
        ("users/ada/entries/", "kind", "rumour"),
        ("users/ada/entries/", "session_id", "%00"),
        ("users/ada/entries/", "state", "rejected"),
        ("users/ada/entries/", "afterwards", "3"),
        ("users/ada/runs/", "kind", "%00"),
        ("users/ada/runs/", "status", "gone"),
        ("users/ada/runs/", "outcome", "gone"),
        ("users/ada/runs/", "state", "open"),
        ("alerts/", "state", "sleeping"),
        ("alerts/", "severity", "x" * 1000),
        ("alerts/", "constraint", "%00"),
        ("users/ada/alerts/", "state", "%00"),
        ("users/ada/alerts/", "kind", "x"),
        ("users/ada/alerts/", "sate", "open"),
        ("users/ada/state/a/b/", "page", "0x1"),
        ("users/ada/state/a/b/", "page", "%00"),
    ],
)
def test_a_list_cannot_be_narrowed_so(
    api: APIClient, refused: Refused, path: str, name: str, value: str
) -> None:
    refused(api.get(f"/v1/{path}?{name}={value}"), 400, name)


@pytest.mark.parametrize("position", ["abc", "%00", "2026", "-1"])
@pytest.mark.parametrize("path", [*LISTS, "users/ada/checkpoints/"])
def test_a_made_up_cursor_is_no_server_error(
    api: APIClient, user: MemoryUser, path: str, position: str
) -> None:
    response = api.get(f"/v1/{path}?cursor={cursor(f'p={position}')}")

    assert response.status_code in (200, 400)


@pytest.mark.parametrize(
    "wait",
    ["-1", "soon", "nan", "inf", "1_0", "%205", "%D9%A3", "%00"],
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "entries/", MESSAGE),
        ("post", "query/", {"code": "1"}),
        ("post", "checkpoints/", {"edits": [{"op": "delete_constraint", "name": "x"}]}),
        ("put", "constraints/x/", {"source": "x", "tests": "x"}),
        ("delete", "constraints/x/", None),
    ],
)
def test_a_wait_that_is_no_sensible_number(
    api: APIClient, refused: Refused, method: str, path: str, body: Any, wait: str
) -> None:
    response = getattr(api, method)(f"/v1/users/ada/{path}?wait={wait}", body)

    refused(response, 400, "wait", "from 0 on")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "users/ada/entries/?wiat=30"),
        ("post", "users/ada/query/?timeout=3"),
        ("get", "users/ada/manifest/?wait=3"),
        ("get", "users/ada/constraints/?after=3"),
        ("put", "users/ada/constraints/x/?pages=3"),
        ("get", "users/ada/state/travel/trips/?pgae=2"),
    ],
)
def test_a_parameter_that_nobody_reads(
    api: APIClient, refused: Refused, method: str, path: str
) -> None:
    name = path.partition("?")[2].partition("=")[0]

    response = getattr(api, method)(f"/v1/{path}", {} if method != "get" else None)

    refused(response, 400, name, "Unknown parameter")


def test_errors_of_thousand_entries_are_brief(api: APIClient, refused: Refused) -> None:
    nonsense = {f"field_{n}": n for n in range(30)}

    response = api.post("/v1/users/ada/entries/", {"entries": [nonsense] * 1000})

    assert response.status_code == 400
    assert len(response.data["errors"]["entries"]) == 20
    assert len(response.content) < 200_000


def test_errors_of_thousand_edits_are_brief(api: APIClient, refused: Refused) -> None:
    response = api.post("/v1/users/ada/checkpoints/", {"edits": [{"op": "dance"}] * 1000})

    refused(response, 400, "edits[0]", "edits[19]")


def test_check_for_writes_notices_a_write(user: MemoryUser) -> None:
    with pytest.raises(AssertionError), nothing_written():
        MemoryUser.objects.filter(pk=user.pk).update(metadata={"vip": True})


def test_a_body_that_ends_too_soon(api: APIClient, refused: Refused) -> None:
    body = b'{"kind": "message", "content": "whole, and yet not all that was announced"}'
    announced = len(body) + 100
    environment: dict[str, Any] = {"CONTENT_LENGTH": str(announced), "wsgi.input": io.BytesIO(body)}

    response = api.post(ENTRIES, body, content_type="application/json", **environment)

    refused(response, 400, f"ended after {len(body)} of {announced} bytes")
