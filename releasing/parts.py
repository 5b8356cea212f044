"""List the packages found in an image, as a software bill of materials (SBOM, CycloneDX)."""

import json
import re
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

# Runs in the image, which may have no shell, pip or dpkg-query: it reads Debian's package list from
# the files that contain it.
_LOOK = r"""
import glob, importlib.metadata, json, re
python = {(re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one.version)
          for one in importlib.metadata.distributions()}
debian = set()
for path in ["/var/lib/dpkg/status", *glob.glob("/var/lib/dpkg/status.d/*")]:
    try:
        text = open(path).read()
    except OSError:
        continue
    for part in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", part, re.MULTILINE))
        if "Version" in fields and " installed" in fields.get("Status", " installed"):
            debian.add((fields["Package"], fields["Version"], fields.get("Architecture", "")))
print(json.dumps({"python": sorted(python), "debian": sorted(debian)}))
"""
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class Parts:
    """The packages in an image: (name, version), plus the architecture of Debian packages."""

    python: Sequence[tuple[str, str]]
    debian: Sequence[tuple[str, str, str]]


def parts_of(image: str) -> Parts:
    """Return the packages in an image; raise CalledProcessError if it has no Python."""
    command = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--entrypoint=python3",
        image,
        "-c",
        _LOOK,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout)
    return Parts(
        python=[(name, version) for name, version in found["python"]],
        debian=[(name, version, architecture) for name, version, architecture in found["debian"]],
    )


def locked(text: str) -> set[tuple[str, str]]:
    """Return the packages that the text of a lock file names, with their versions."""
    found = _LOCKED.findall(text)
    return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in found}


def strangers(parts: Parts, lock: Collection[tuple[str, str]]) -> list[str]:
    """Return the installed Python packages that the lock file lacks, or has in another version."""
    return sorted(f"{name}=={version}" for name, version in set(parts.python) - set(lock))


def bill(image: str, version: str, parts: Parts) -> str:
    """Return the list of an image's packages as CycloneDX 1.6, in JSON."""
    bom = Bom()
    name = image.partition(":")[0]
    bom.metadata.component = Component(name=name, version=version, type=ComponentType.CONTAINER)
    urls = [PackageURL("pypi", None, *one) for one in parts.python]
    urls += [
        PackageURL("deb", "debian", package, number, {"arch": architecture})
        for package, number, architecture in parts.debian
    ]
    for url in urls:
        component = Component(
            name=url.name,
            version=url.version,
            type=ComponentType.LIBRARY,
            purl=url,
            bom_ref=url.to_string(),
        )
        bom.components.add(component)
        bom.register_dependency(bom.metadata.component, [component])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
