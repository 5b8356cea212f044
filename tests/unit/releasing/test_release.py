"""Reasons that block a release, and problems that the auditing tools must not miss."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from releasing.audit import FOUND, NOT_LOOKED, judge
from releasing.parts import Parts, bill, locked, strangers
from releasing.release import (
    IMAGES,
    PLACEHOLDER,
    ROOT,
    VERSIONED,
    archive_of,
    checksums,
    files_with_placeholder,
    problems,
    stated_versions,
)
from releasing.secret_scan import BASELINE, committed, scan

CHANGELOG = """# Changelog

## Unreleased

## [1.2.0] - 2026-11-30

- Something new.

## [1.1.0] - 2026-10-01
"""


NPM = ("clients/typescript", "integrations/ai-sdk")
PYPI = (".", "clients/python", "integrations/agents")
STATED = {"pyproject.toml": ["1.2.0"], "server.json": ["1.2.0", "1.2.0"]}


def test_a_version_that_all_agree_on_can_be_released() -> None:
    assert problems("1.2.0", CHANGELOG, stated=STATED, tags={"v1.1.0"}) == []


@pytest.mark.parametrize(
    ("version", "changes", "told"),
    [
        ("1.3.0", {}, "the newest release is 1.2.0, but pyproject.toml says 1.3.0"),
        ("1.1.0", {}, "the newest release is 1.2.0"),
        ("1.2", {}, "give a version like 1.2.3"),
        ("1.2.0rc1", {}, "give a version like 1.2.3"),
        (
            "1.2.0",
            {"changed": " M memory/log/entry_log.py"},
            "Commit or discard these changes:\n M memory",
        ),
        ("1.2.0", {"tags": {"v1.2.0"}}, "The tag v1.2.0 belongs to another commit"),
        ("1.2.0", {"placeholders": ["SECURITY.md"]}, "owner and name in SECURITY.md."),
    ],
)
def test_disagreeing_versions_are_named(version: str, changes: dict[str, Any], told: str) -> None:
    assert told in "\n".join(problems(version, CHANGELOG, stated={}, **changes))


@pytest.mark.parametrize("versions", [["1.1.0"], ["1.2.0", "1.1.0"], []])
def test_file_with_another_version_is_named(versions: list[str]) -> None:
    [told] = problems("1.2.0", CHANGELOG, stated={**STATED, "package.json": versions})

    assert told.startswith("package.json: ")


def test_every_place_with_a_version_is_compared(tmp_path: Path) -> None:
    [version] = stated_versions(ROOT)["pyproject.toml"]
    for name in VERSIONED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text().replace(version, "1.2.0"))

    stated = stated_versions(tmp_path)

    assert problems("1.2.0", CHANGELOG, stated=stated) == []
    assert {name: len(versions) for name, versions in stated.items()} == {
        "pyproject.toml": 1,
        "clients/python/pyproject.toml": 1,
        "clients/python/server.json": 3,
        "clients/typescript/package.json": 1,
        "deploy/kubernetes/kustomization.yaml": 1,
        "integrations/agents/pyproject.toml": 1,
        "integrations/ai-sdk/package.json": 2,
    }


def test_every_package_names_the_one_repository() -> None:
    repositories = [
        json.loads((ROOT / folder / "package.json").read_text())["repository"] for folder in NPM
    ]
    urls = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["urls"]
        for folder in PYPI
    ]

    assert [one["directory"] for one in repositories] == list(NPM)
    [url] = {one["url"] for one in repositories}
    assert {f"git+{one['Repository']}.git" for one in urls} == {url}


def test_file_that_waits_for_the_repositorys_name_is_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert files_with_placeholder(tmp_path) == []

    (tmp_path / "package.json").write_text(f'"url": "{PLACEHOLDER}"')
    subprocess.run(["git", "add", "package.json"], cwd=tmp_path, check=True)
    assert files_with_placeholder(tmp_path) == ["package.json"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "## Unreleased\n",
            "## Unreleased\n\n- More.\n",
            "move the changes still under Unreleased",
        ),
        (" - 2026-11-30", "", "give the date of 1.2.0"),
        ("## [1.2.0] - 2026-11-30", "", "the newest release is 1.1.0"),
    ],
)
def test_the_changelog_has_to_be_ready(old: str, new: str, told: str) -> None:
    assert told in "\n".join(problems("1.2.0", CHANGELOG.replace(old, new), stated=STATED))


def package(**more: Any) -> dict[str, Any]:
    return {"name": "django", "version": "5.2.1", "vulns": [], **more}


FLAW = {"id": "CVE-2026-1", "fix_versions": ["5.2.2"]}


@pytest.mark.parametrize(
    ("report", "status", "told"),
    [
        ({"dependencies": [package()]}, 0, "no known vulnerabilities in 1 packages"),
        ({"dependencies": [package(vulns=[FLAW])]}, FOUND, "django 5.2.1: CVE-2026-1"),
        # pip-audit reports packages that it could not look up as free of vulnerabilities.
        (
            {"dependencies": [package(), {"name": "x", "version": "1", "skip_reason": "?"}]},
            NOT_LOOKED,
            "NOT CHECKED for known vulnerabilities: 1 of 2 packages",
        ),
        (None, NOT_LOOKED, "all packages (no name resolution)"),
        ({"dependencies": []}, NOT_LOOKED, "NOT CHECKED"),
    ],
)
def test_failed_lookup_does_not_count_as_sound(
    report: dict[str, Any] | None, status: int, told: str
) -> None:
    verdict = judge(report, "no name resolution")

    assert verdict.status == status
    assert told in verdict.told


def test_a_secret_that_nobody_has_judged_is_found(tmp_path: Path) -> None:
    known = tmp_path / "baseline"
    known.write_text(json.dumps({**json.loads(BASELINE.read_text()), "results": {}}))
    (tmp_path / "settings.py").write_text('PASSWORD = "hunter2-hunter2"\nX = 1\n')

    found, told = scan([str(tmp_path / "settings.py")], known)
    assert [line.partition("settings.py")[2] for line in told] == [
        ":1: Secret Keyword: review it (docs/releasing.md)"
    ]

    results = found.json()
    for secrets in results.values():
        secrets[0]["is_secret"] = False
    known.write_text(json.dumps({**json.loads(known.read_text()), "results": results}))
    assert scan([str(tmp_path / "settings.py")], known)[1] == []
    (gone,) = scan([], known)[1]
    assert gone.endswith("settings.py: Secret Keyword: no longer in the file")


def test_everything_that_is_committed_is_looked_through() -> None:
    files = committed()

    assert {"uac_site/settings.py", "docker-compose.yml", "README.md"} <= set(files)
    assert not [name for name in files if name.startswith((".venv", ".git/"))]


PARTS = Parts(python=[("a-b", "1.0"), ("c", "2")], debian=[("libc6", "2.36-9", "amd64")])


def test_a_bill_lists_just_the_parts() -> None:
    told = json.loads(bill("uac-server:1.2.0", "1.2.0", PARTS))

    assert (told["bomFormat"], told["metadata"]["component"]["version"]) == ("CycloneDX", "1.2.0")
    assert {one["purl"] for one in told["components"]} == {
        "pkg:pypi/a-b@1.0",
        "pkg:pypi/c@2",
        "pkg:deb/debian/libc6@2.36-9?arch=amd64",
    }


def test_package_outside_the_lock_is_a_stranger() -> None:
    lock = locked("A_b==1.0 \\\n    --hash=sha256:00\nc[x]==3 ; python_version > '3'\n# d==1\n")

    assert lock == {("a-b", "1.0"), ("c", "3")}
    assert strangers(PARTS, lock) == ["c==2"]


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")

    assert checksums(tmp_path) == (
        "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  a\n"
    )


def test_a_build_without_a_target_is_the_server() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", dockerfile, re.MULTILINE)

    assert stages[-1] == ("server", "")
    assert {target for target, _ in IMAGES.values()} < {name for _, name in stages}


JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
COMMANDS = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]


def test_what_is_published_to_pypi_is_no_image() -> None:
    job = JOBS["pypi"]
    (moved,) = re.findall(r"mv (.+) upload/", str(job))
    for package in job["strategy"]["matrix"]["package"]:
        patterns = moved.replace("${{ matrix.package }}", package).split()
        assert patterns
        for image in IMAGES:
            path = f"dist/{archive_of(f'{image}:1.2.0')}"
            assert not any(fnmatch(path, pattern) for pattern in patterns), (path, patterns)


@pytest.mark.parametrize("name", JOBS)
def test_each_job_has_the_files_that_it_reads(name: str) -> None:
    has = {"checkout": False, "dist": False}
    for step in JOBS[name]["steps"]:
        action, text = step.get("uses", ""), f"{step.get('run', '')} {step.get('with', '')}"
        has["checkout"] |= action.startswith("actions/checkout@")
        has["dist"] |= action.startswith("actions/download-artifact@") or "make release" in text
        if re.search(r"\bmake |-m releasing|pyproject\.toml|-from-tag|'context': '\.'", text):
            assert has["checkout"], step
        if re.search(r"\bdist/", text):
            assert has["dist"], step


@pytest.mark.parametrize(
    ("command", "documented"),
    [
        (
            "gh release create",
            {"--draft", "--latest", "--notes-file", "--prerelease", "--title", "--verify-tag"},
        ),
        ("npm publish", {"--access", "--dry-run", "--provenance", "--tag"}),
        ("cosign sign", {"--annotations", "--recursive", "--yes"}),
    ],
)
def test_the_workflow_calls_programs_as_they_are_documented(
    command: str, documented: set[str]
) -> None:
    lines = [line for line in COMMANDS if line.startswith(command)]

    assert lines
    assert {flag for line in lines for flag in re.findall(r" (--?[\w-]+)", line)} <= documented


def test_nothing_is_built_for_a_tag_of_another_version() -> None:
    [version] = stated_versions(ROOT)["pyproject.toml"]
    commands = [step.get("run", "") for step in JOBS["build"]["steps"]]
    check = next(command for command in commands if "GITHUB_REF_NAME" in command)

    def status(tag: str) -> int:
        shell = ["bash", "-e", "-c", check]
        return subprocess.run(shell, cwd=ROOT, env={"GITHUB_REF_NAME": tag}, check=False).returncode

    assert commands.index(check) < commands.index("make release")
    assert status(f"v{version}") == 0
    assert status("v99.0.0") == status("99.0.0") == 1


def test_a_release_is_told_of_in_the_words_of_the_changelog(tmp_path: Path) -> None:
    [command] = [line for line in COMMANDS if "releasing.changelog" in line]
    # Where the workflow runs, nothing is installed (-S).
    bare = command.replace("python3", f"{sys.executable} -S").replace("> notes.md", "")
    shell = ["bash", "-e", "-c", bare]
    environment = {"GITHUB_REF_NAME": "v0.1.0"}

    notes = subprocess.check_output(shell, cwd=ROOT, env=environment, text=True)

    assert notes.startswith("The first release.")
    assert f"\n{notes}" in (ROOT / "CHANGELOG.md").read_text()
