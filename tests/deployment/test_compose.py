"""docker-compose.yml, really started: what it can do, and what it cannot be made to do."""

import http.cookies
import json
import re
import subprocess
import urllib.parse

import pytest

from benchmarks.harness import Client
from tests.deployment.conftest import SERVICES, Deployment, ask, health, inspected, run
from tests.llm_server import KEY, LlmServer
from tests.smoke.test_main_loop import AMOXICILLIN, IBUPROFEN, PENICILLIN
from tests.system import DRUG_ALLERGY, Person, create_person, message, record
from tests.waiting import polled
from tests.webhook_receiver import receiver

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def person(deployment: Deployment) -> Person:
    return create_person(deployment.client("compose"), time_zone="Europe/Berlin")


def test_everything_is_healthy_and_migrated_once(deployment: Deployment) -> None:
    containers = [one for name in SERVICES for one in deployment.containers(name)]
    polled(lambda: {health(one) for one in containers}, lambda states: states == {"healthy"}, 120)
    assert len(deployment.containers("web")) == 2
    migrated = inspected(deployment.one("migrate"))["State"]
    assert (migrated["Status"], migrated["ExitCode"]) == ("exited", 0)


def test_main_loop_from_entry_to_acknowledged_alert(deployment: Deployment, person: Person) -> None:
    entries = person.log(PENICILLIN, IBUPROFEN)
    assert [entry["state"] for entry in entries] == ["covered"] * 2
    person.write_constraint("drug_allergy", DRUG_ALLERGY)

    person.log(AMOXICILLIN)

    [alert] = polled(lambda: person.alerts("open"), len)
    assert (alert["severity"], "Amoxicillin" in alert["message"]) == ("critical", True)
    status, answer = person.client.post(f"alerts/{alert['id']}/acknowledge/", {"note": "seen"})
    assert (status, answer["state"]) == (200, "acknowledged")
    answer = person.post("query/?wait=30", {"code": "len(medications)"}, status=200)
    assert (answer["value"], answer["runner"], answer["warning"]) == (2, "docker", None)


def test_question_reaches_model_with_key_of_secret(person: Person, llm: LlmServer) -> None:
    trips = [
        record("Trip", name, domain="travel", on=on, cost=cost)
        for name, on, cost in (("rome", "2026-05-02", 840), ("oslo", "2026-09-11", 1260))
    ]
    person.log(*trips)

    status, answer = person.client.post(
        "users/ada/ask/?wait=30", {"question": "What did I spend on trips in 2026?"}
    )

    assert status == 200, answer
    assert answer["value"] == 2100
    assert llm.requests[-1].headers["authorization"] == f"Bearer {KEY}"


def test_message_becomes_a_fact_and_a_record(person: Person) -> None:
    said = message("Ada visits Rome")

    person.log({**said, "metadata": {"urgent": True}})

    polled(lambda: person.get("manifest/")["text"], lambda text: "Visit(place, said)" in text)
    [visit] = person.get("state/travel/visits/")["records"]
    assert visit["fields"]["place"] == "Rome"
    entries = person.get("entries/")["results"]
    [fact] = [entry for entry in entries if entry["kind"] == "fact"]
    assert (fact["content"], visit["sources"]) == ("Ada visits Rome", [fact["seq"]])


def test_an_alert_is_told_to_a_webhook(deployment: Deployment, outside: str) -> None:
    client = deployment.client("hooked")
    made = deployment.manage("create_key", "hooked", "--scope=manage")
    manager = Client(deployment.url, json.loads(made)["api_key"])
    eve = create_person(client, "eve")
    eve.log(PENICILLIN)
    eve.log(IBUPROFEN)
    eve.write_constraint("drug_allergy", DRUG_ALLERGY)
    with receiver(address=outside) as hook:
        status, endpoint = manager.post("webhooks/", {"url": hook.url})
        assert status == 201, endpoint

        eve.log(AMOXICILLIN)

        [told] = polled(lambda: hook.received, len)
    body = told.verified(endpoint["secret"])
    assert body["type"] == "alert.opened"
    assert "Amoxicillin" in body["data"]["alert"]["message"]


def test_the_staff_log_in_over_tls_at_a_page_with_its_style(deployment: Deployment) -> None:
    deployment.manage(
        *("createsuperuser", "--noinput", "--username=eve", "--email=eve@example.com"),
        DJANGO_SUPERUSER_PASSWORD=PASSWORD,
    )
    page, cookies = _get(deployment, "/admin/login/")
    styles = re.findall(r'href="(/static/[^"]+\.css)"', page)
    assert "/static/admin/css/login.css" in styles
    for style in styles:
        assert "{" in _get(deployment, style)[0]

    [token] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    form = urllib.parse.urlencode(
        {"login": "eve", "password": PASSWORD, "csrfmiddlewaretoken": token, "next": "/admin/"}
    )
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": "; ".join(f"{one.key}={one.value}" for one in cookies.values()),
        "Referer": f"{deployment.url}/admin/login/",
    }
    answer = ask(deployment, "POST", "/admin/login/", form, **headers)
    assert (answer.status, answer.headers["Location"]) == (302, "/admin/")
    assert "Secure" in answer.headers["Set-Cookie"]


def test_passwords_are_not_tried_without_end(deployment: Deployment) -> None:
    form = "username=eve&password=none"
    paths = ("/admin/login/", "/%61dmin/login/") * 20
    statuses = [ask(deployment, "POST", path, form).status for path in paths]

    assert statuses[0] == 403  # it came from no form of ours
    assert statuses[-1] == 429
    assert statuses == sorted(statuses)
    _get(deployment, "/admin/login/")
    assert deployment.client("tried").get("users/")[0] == 200


def _get(deployment: Deployment, path: str) -> tuple[str, "http.cookies.SimpleCookie"]:
    answer = ask(deployment, "GET", path)
    body = answer.read().decode()
    assert answer.status == 200, body
    return body, http.cookies.SimpleCookie(answer.headers.get("Set-Cookie", ""))


def test_agents_are_answered_at_the_same_address(deployment: Deployment, person: Person) -> None:
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "run_query", "arguments": {"code": "len(medications) + 40"}},
    }
    headers = {
        "Authorization": f"Bearer {person.client.key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    answer = ask(deployment, "POST", "/users/ada/mcp", json.dumps(request), **headers)
    body = json.loads(answer.read())
    assert answer.status == 200, body
    assert body["result"]["structuredContent"]["value"] == 42, body


def test_forged_claim_of_tls_is_not_believed(deployment: Deployment) -> None:
    """Only the balancer may report TLS; nobody else reaches web and mcp from outside."""
    for name in SERVICES:
        containers = deployment.containers(name)
        assert containers, name
        for container in containers:
            bound = inspected(container)["HostConfig"]["PortBindings"]
            assert bool(bound) == (name == "balancer"), name


# The other services talk to models, webhooks and the mail server, or publish the port.
INSIDE = ("postgres", "redis", "web", "mcp", "worker-sandbox", "beat", "socket-proxy")


@pytest.mark.parametrize("service", SERVICES)
def test_only_calling_services_have_a_way_outside(deployment: Deployment, service: str) -> None:
    containers = deployment.containers(service)
    assert containers
    for container in containers:
        named = run(
            *("docker", "inspect", "--format"),
            "{{range .NetworkSettings.Networks}}{{.NetworkID}} {{end}}",
            container,
        )
        asked = ["docker", "network", "inspect", "--format", "{{.Driver}} {{.Internal}}"]
        # The engine does not forward packets of an internal network.
        leads_out = "bridge false" in run(*asked, *named.split()).splitlines()
        assert leads_out == (service not in INSIDE)


def test_the_database_has_room_for_twice_the_processes(deployment: Deployment) -> None:
    asked = "SELECT setting FROM pg_settings WHERE name = 'max_connections'"
    database = deployment.one("postgres")
    options = ("--username=postgres", "--tuples-only", "--no-align", f"--command={asked}")
    assert run("docker", "exec", database, "psql", *options).strip() == "400"


@pytest.mark.parametrize("service", SERVICES)
def test_no_process_is_root_or_writes_to_its_image(deployment: Deployment, service: str) -> None:
    container = deployment.containers(service)[0]
    config = inspected(container)["HostConfig"]
    assert config["ReadonlyRootfs"] is True
    assert config["CapDrop"] == ["ALL"]
    assert not config["Privileged"]
    assert config["SecurityOpt"] == ["no-new-privileges:true"]
    assert config["Memory"] > 0
    assert config["PidsLimit"] > 0
    told = run(
        *("docker", "exec", container, "sh", "-c"),
        "for status in /proc/[0-9]*/status; do cat $status; done;"
        " for place in / /opt /usr /etc; do touch $place/leak && echo LEAK $place; done; exit 0",
    )
    users = re.findall(r"^Uid:\s+(\d+)\s+(\d+)", told, re.MULTILINE)
    assert users
    assert {"0"}.isdisjoint(uid for pair in users for uid in pair)
    assert set(re.findall(r"^Cap(?:Eff|Prm|Inh|Amb):\s+(\w+)", told, re.MULTILINE)) == {"0" * 16}
    assert set(re.findall(r"^NoNewPrivs:\s+(\d)", told, re.MULTILINE)) == {"1"}
    assert "LEAK" not in told


def test_no_secret_is_in_the_environment_or_told_by_the_engine(deployment: Deployment) -> None:
    texts = [path.read_text() for path in (deployment.folder / "secrets").iterdir()]
    secrets = {word for text in texts for word in re.findall(r"[\w+/=-]{32,}", text)}
    assert len(secrets) > 8
    for service in (*SERVICES, "migrate"):
        told = json.dumps(inspected(deployment.containers(service)[0]))
        assert [secret for secret in secrets if secret in told] == []


def test_the_image_has_nothing_to_build_with(deployment: Deployment) -> None:
    found = subprocess.run(
        [
            *("docker", "run", "--rm", "--network=none", "--entrypoint=sh", deployment.image, "-c"),
            "for name in gcc cc make pip pip3 git curl; do command -v $name; done;"
            " python3 -c 'import pip'; ls tests benchmarks .git secrets 2>/dev/null; true",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""
    assert "No module named 'pip'" in found.stderr
    [labels] = [
        image["Config"]["Labels"]
        for image in json.loads(run("docker", "image", "inspect", deployment.image))
    ]
    assert labels["org.opencontainers.image.version"] == "first"


def test_only_proxy_reaches_engine_and_only_worker_proxy(
    deployment: Deployment,
) -> None:
    mounts: dict[str, list[str]] = {}
    for service in SERVICES:
        for mount in inspected(deployment.containers(service)[0])["Mounts"]:
            mounts.setdefault(mount["Destination"], []).append(service)
    assert mounts["/var/run/docker.sock"] == ["socket-proxy"]
    assert mounts["/run/engine"] == ["worker-sandbox", "socket-proxy"]
    [engine] = [
        mount
        for mount in inspected(deployment.one("worker-sandbox"))["Mounts"]
        if mount["Destination"] == "/run/engine"
    ]
    assert engine["RW"] is False
    assert inspected(deployment.one("socket-proxy"))["HostConfig"]["NetworkMode"] == "none"


ATTACK = """
import json, sys
import docker
from docker.errors import APIError

client = docker.from_env()
said = {}
def attempt(name, do):
    try:
        do()
        said[name] = "it was done"
    except APIError as error:
        said[name] = error.status_code
attempt("privileged", lambda: client.containers.create(sys.argv[1], "true", privileged=True))
attempt("the host", lambda: client.containers.create(
    sys.argv[1], "true", volumes={"/": {"bind": "/host"}}))
attempt("exec", lambda: client.api.exec_create(sys.argv[2], "id"))
attempt("remove the database", lambda: client.api.remove_container(sys.argv[2], force=True))
attempt("stop the database", lambda: client.api.stop(sys.argv[2]))
attempt("read the database", lambda: client.api.get_archive(sys.argv[2], "/"))
attempt("look at all", lambda: client.api.containers(all=True))
attempt("images", lambda: client.images.list())
attempt("build", lambda: list(client.api.build(fileobj=sys.stdin.buffer)))
attempt("volumes", lambda: client.volumes.create("leak"))
attempt("swarm", lambda: client.swarm.init())
print(json.dumps(said))
"""


def test_hijacked_sandbox_worker_gains_nothing_from_engine(
    deployment: Deployment,
) -> None:
    worker, database = deployment.one("worker-sandbox"), deployment.one("postgres")
    image = inspected(worker)["Image"]

    def of_the_image() -> set[str]:
        found = run("docker", "ps", "--all", "--quiet", "--filter", f"ancestor={image}")
        return {*found.split()}

    before = of_the_image()  # another run's may have the same

    said = json.loads(run("docker", "exec", worker, "python3", "-c", ATTACK, image, database))

    assert set(said.values()) == {403}, said
    assert len(said) == 11
    assert health(database) == "healthy"
    assert of_the_image() <= before
    assert run("docker", "volume", "ls", "--quiet", "--filter", "name=^leak$") == ""
    log = subprocess.run(
        ["docker", "logs", deployment.one("socket-proxy")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout
    # Of the two containers to create, neither has the template's environment.
    assert log.count("create: does not match the template") == 2
    assert "/swarm: no sandbox worker needs this request" in log


def test_verify_finds_no_problem(deployment: Deployment, person: Person) -> None:
    output = deployment.manage("verify")
    assert output.splitlines()[-1].endswith(" 0 problems")
    assert not output.startswith("verified 0 users")
