"""An anonymous user is merged over HTTP with real workers; then everything is downloaded."""

import io
import json
import urllib.request
import zipfile

from deploy.embedded.system import System
from tests.system import EVERYTHING, LATE, create_person, message, new_client, task
from tests.waiting import polled, scaled


def test_who_was_anonymous_is_known_and_alerted_once(system: System) -> None:
    client = new_client(system, "merges", *EVERYTHING)
    ada, anon = create_person(client), create_person(client, "anon-123")
    for person, name in ((ada, "letter"), (anon, "report")):
        person.log(task(name, days=3))
        person.write_constraint("late", LATE)
        polled(lambda person=person: person.alerts("open"), len)  # type: ignore[misc]
    anon.log(message("I am somebody"))

    started = ada.post("merge/", {"from": "anon-123"}, status=202)
    refused = anon.post("entries/", message("more"), status=409)
    done = polled(
        lambda: ada.post("merge/", {"from": "anon-123"}, status=202),
        lambda told: told["state"] == "done",
    )

    assert started["left_behind"] == ["constraints/late.py"]
    assert refused["detail"] == "anon-123 was merged into ada: use that user instead."
    assert (done["entries"], done["copied"]) == (2, 2)
    assert anon.get()["merged_into"] == "ada"
    assert anon.alerts("open") == []
    late = polled(lambda: ada.alerts("open"), lambda alerts: len(alerts) == 2)
    assert sorted(alert["message"].split()[0] for alert in late) == ["letter", "report"]
    assert len(ada.alerts()) == 2
    assert system.manage("verify", "--workspace", "merges").rstrip().endswith(": 0 problems")

    request = urllib.request.Request(
        f"{system.base_url}/v1/users/ada/subject-access/",
        headers={"Authorization": f"Bearer {client.key}"},
    )
    with urllib.request.urlopen(request, timeout=scaled(60)) as answer:
        zipped = zipfile.ZipFile(io.BytesIO(answer.read()))
    names = zipped.namelist()
    said = [json.loads(line) for line in zipped.read("log.jsonl").splitlines()]
    assert [entry["kind"] for entry in said] == ["record", "record", "message"]
    assert "project/domains/work/state.py" in names
    assert any(name.startswith("merged/") and name.endswith("/log.jsonl") for name in names)
