"""A redaction over HTTP with real workers: answered at once, done soon, and nothing leaks."""

import json
import urllib.parse

import pytest

from deploy.embedded.system import System
from tests.system import EVERYTHING, Person, create_person, new_client, record
from tests.waiting import polled

MARKER = "Wolframite"


@pytest.fixture(scope="module")
def ada(system: System) -> Person:
    """A person of a workspace whose key may redact."""
    client = new_client(system, "redactions", *EVERYTHING)
    return create_person(client, time_zone="Europe/Berlin")


def test_what_is_redacted_is_gone_within_seconds(ada: Person) -> None:
    ada.log(record("Medication", "a", domain="health", name="Aspirin"))
    (secret,) = ada.log(record("Medication", "b", domain="health", name=MARKER))
    names = {"code": "[m.name for m in medications]"}
    asked = ada.post("query/?wait=100", names, status=200)
    assert asked["value"] == ["Aspirin", MARKER]

    reason = urllib.parse.quote("asked for by mail")
    path = f"entries/{secret['seq']}/"
    told = ada.request("DELETE", f"{path}?reason={reason}", status=202)

    assert told["entries"] == [secret["seq"]]
    done = polled(
        lambda: ada.request("DELETE", path, status=202), lambda seen: seen["state"] == "done"
    )
    assert (done["seq"], done["records"], done["version"]) == (told["seq"], 1, 3)
    assert ada.post("query/?wait=100", names, status=200)["value"] == ["Aspirin"]
    assert MARKER not in json.dumps(ada.get("entries/"))
    assert MARKER not in ada.file("domains/health/state.py")
    assert MARKER not in json.dumps(ada.get("runs/"))
    ada.get("state/?as_of=v2", status=410)
    status, run = ada.client.get(f"runs/{asked['id']}/")
    assert (status, run["output"]) == (200, None)
