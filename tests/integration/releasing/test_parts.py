"""A list of parts has exactly the content of the image."""

import json
import subprocess

import pytest

from releasing.parts import bill, parts_of
from workers.sandbox.build import ensure_convert_image, ensure_image, ensure_typecheck_image

pytestmark = pytest.mark.docker

# Another way to look than that of the list: by the names of files.
LOOK = """
import glob, sys
for folder in sys.path:
    for path in glob.glob(folder + "/*.dist-info/METADATA"):
        print("python", path.split("/")[-2].removesuffix(".dist-info").lower().replace("_", "-"))
for path in glob.glob("/var/lib/dpkg/status.d/*") + glob.glob("/var/lib/dpkg/info/*.list"):
    print("debian", path.split("/")[-1].removesuffix(".list").partition(":")[0])
"""


def test_list_of_parts_is_what_is_installed() -> None:
    sandbox = ensure_image()
    typecheck, convert = ensure_typecheck_image(sandbox), ensure_convert_image(sandbox)
    for image in (sandbox, typecheck, convert):
        command = ["docker", "run", "--rm", "--network=none", "--entrypoint=python3", image]
        seen = subprocess.run([*command, "-c", LOOK], capture_output=True, text=True, check=True)
        there = {tuple(line.split(" ", 1)) for line in seen.stdout.splitlines()}

        told = json.loads(bill(image, "1.0", parts_of(image)))["components"]

        assert there == {
            ("python", f"{one['name']}-{one['version']}")
            if one["purl"].startswith("pkg:pypi/")
            else ("debian", one["name"])
            for one in told
        }
        # An image without Debian's Python has one from elsewhere, and Debian's C library.
        assert any(name.startswith("libc6") for kind, name in there if kind == "debian")
        assert any(name.startswith("mypy-") for kind, name in there) == (image == typecheck)
        assert any(name.startswith("pypdf-") for kind, name in there) == (image == convert)
