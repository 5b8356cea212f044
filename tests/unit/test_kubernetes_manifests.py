"""deploy/kubernetes: its parts run what the services of docker-compose.yml run, with their rights.

`tests/deployment/test_kubernetes.py` renders the manifests and validates them.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
# In a cluster, the database, Redis, the balancer and the sandbox hosts are the operator's.
PARTS = ("web", "mcp", "worker-llm", "worker-default", "beat", "migrate")


@cache
def _compose() -> dict[str, Any]:
    text = (ROOT / "docker-compose.yml").read_text()
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


def _workload(part: str) -> dict[str, Any]:
    documents: list[dict[str, Any]] = [
        *yaml.safe_load_all((MANIFESTS / f"{part}.yaml").read_text())
    ]
    [workload] = [one for one in documents if one["kind"] in ("Deployment", "Job")]
    return workload


def _pod(part: str) -> dict[str, Any]:
    pod: dict[str, Any] = _workload(part)["spec"]["template"]["spec"]
    return pod


def _variables(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: str(one["value"]) for one in container["env"]}


@pytest.mark.parametrize("part", PARTS)
def test_part_runs_the_command_of_its_service(part: str) -> None:
    [container] = _pod(part)["containers"]
    assert container["command"] == _compose()[part]["command"]


@pytest.mark.parametrize("part", PARTS)
def test_part_reads_the_secrets_of_its_service(part: str) -> None:
    service = _compose()[part]
    [volume] = [one for one in _pod(part)["volumes"] if one["name"] == "secrets"]
    files = {item["path"]: item["key"] for item in volume["secret"]["items"]}
    common = yaml.safe_load((MANIFESTS / "pod.yaml").read_text())["spec"]["template"]["spec"]
    variables = {**_variables(common["containers"][0]), **_variables(_pod(part)["containers"][0])}
    read = {
        name: files[path.removeprefix("/run/secrets/uac/")]
        for name, path in variables.items()
        if name.endswith("_FILE") and name != "UAC_DRAIN_FILE"
    }

    assert set(files.values()) == {*service["secrets"]}
    assert read == {
        name: path.removeprefix("/run/secrets/")
        for name, path in service["environment"].items()
        if name.endswith("_FILE") and name != "UAC_DRAIN_FILE"
    }


@pytest.mark.parametrize("part", PARTS)
def test_part_has_the_memory_of_its_service(part: str) -> None:
    [container] = _pod(part)["containers"]
    limit = container["resources"]["limits"]["memory"]
    assert limit.removesuffix("i").lower() == _compose()[part]["mem_limit"]


def test_only_parts_on_the_network_outside_reach_the_internet() -> None:
    documents = yaml.safe_load_all((MANIFESTS / "network.yaml").read_text())
    [outside] = [one for one in documents if one["metadata"]["name"] == "outside"]
    [rule] = outside["spec"]["podSelector"]["matchExpressions"]

    assert {*rule["values"]} == {
        part for part in PARTS if "outside" in _compose()[part]["networks"]
    }


def test_paths_of_agents_go_to_mcp_as_the_balancer_sends_them() -> None:
    [rule] = yaml.safe_load((MANIFESTS / "ingress.yaml").read_text())["spec"]["rules"]
    paths = {one["path"]: one["backend"]["service"]["name"] for one in rule["http"]["paths"]}
    balancer = (ROOT / "deploy" / "haproxy.cfg").read_text()

    assert paths.pop("/") == "web"
    assert {*paths.values()} == {"mcp"}
    for path in paths:
        assert path in balancer, path
