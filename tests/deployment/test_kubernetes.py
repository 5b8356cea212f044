"""The manifests in deploy/kubernetes: rendered, valid for Kubernetes' schemas, and hardened.

They are tried alone, and with the overlay of docs/kubernetes.md. Nothing is applied to a cluster.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.framework_venvs import python_with
from tests.snippets import blocks

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
# The newest that the validator knows is tried, too.
KUBERNETES = ("1.28", "1.31")
# What checkov is not asked, and why.
LEFT_OUT = {
    "CKV_K8S_9": "workers and beat answer no requests, so nothing waits until they are ready",
    "CKV_K8S_11": "a limit on processors throttles; memory is limited",
    "CKV_K8S_15": "a tag names a release, and is never pushed again",
    "CKV_K8S_43": "the image is built and named by the operator",
}


@pytest.fixture(scope="module")
def tools() -> Path:
    """Return the folder of the validator and the linter."""
    return python_with(["kubernetes-validate>=1.31", "checkov>=3.2,<4"]).parent


@pytest.fixture(scope="module", params=["alone", "overlay"])
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the rendered manifests."""
    folder = tmp_path_factory.mktemp(request.param)
    source = MANIFESTS
    if request.param == "overlay":
        [overlay] = blocks(PAGE, "yaml")
        source = folder / "overlay"
        source.mkdir()
        (folder / "deploy").symlink_to(ROOT / "deploy")
        (source / "kustomization.yaml").write_text(overlay)
    command = ["kubectl", "kustomize", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file = folder / "rendered.yaml"
    file.write_text(done.stdout)
    return file


def _documents(file: Path) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(file.read_text())]


def test_manifests_are_valid(rendered: Path, tools: Path) -> None:
    for version in (*KUBERNETES, ""):
        command = [str(tools / "kubernetes-validate"), "--strict", "--quiet", str(rendered)]
        if version:
            command[1:1] = ["--kubernetes-version", version]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (version, done.stdout, done.stderr)


def test_invalid_manifest_is_found(rendered: Path, tools: Path, tmp_path: Path) -> None:
    """The test above can fail."""
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered.read_text().replace("restartPolicy", "restartPolitely"))
    command = [str(tools / "kubernetes-validate"), "--strict", "--quiet", str(file)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_linter_has_nothing_to_say(rendered: Path, tools: Path) -> None:
    skipped = ",".join(LEFT_OUT)
    command = [str(tools / "checkov"), "--framework", "kubernetes", "--output", "json", "--compact"]
    command += ["--skip-check", skipped, "--file", str(rendered)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)

    assert report["summary"]["passed"] > 100
    assert [one["check_id"] for one in report["results"]["failed_checks"]] == []


def test_all_pods_are_hardened(rendered: Path) -> None:
    workloads = [one for one in _documents(rendered) if one["kind"] in ("Deployment", "Job")]
    assert len(workloads) == 6
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert re.search(r"uac-server:\d+\.\d+\.\d+$", container["image"])
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert ("livenessProbe" in container) == (workload["kind"] == "Deployment")


def test_autoscaled_parts_have_no_number_of_replicas(rendered: Path) -> None:
    documents = _documents(rendered)
    scaled = {
        one["spec"]["scaleTargetRef"]["name"]
        for one in documents
        if "scaleTargetRef" in one.get("spec", {})
    }
    fixed = {
        one["metadata"]["name"]
        for one in documents
        if one["kind"] == "Deployment" and "replicas" in one["spec"]
    }
    assert fixed & scaled == set()
    assert fixed | scaled == {"web", "mcp", "worker-llm", "worker-default", "beat"}


def test_page_makes_the_secret_that_the_pods_mount(rendered: Path, tmp_path: Path) -> None:
    subprocess.run([ROOT / "deploy" / "prepare", "uac.example.org", tmp_path], check=True)
    [line] = [one for one in PAGE.splitlines() if "create secret" in one]
    command = f"{line.replace('/etc/uac', str(tmp_path))} --dry-run=client --output=json"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    keys = {*json.loads(done.stdout)["data"]}

    mounted = {
        item["key"]
        for one in _documents(rendered)
        if one["kind"] in ("Deployment", "Job")
        for volume in one["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
        for item in volume["secret"]["items"]
    }
    assert {"database_url", "owner_database_url", "email_url"} <= mounted <= keys
