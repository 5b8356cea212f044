"""Build the documentation as a site that needs no other server: `python -m releasing.site FOLDER`.

The navigation is the index in docs/README.md. All documents keep their places relative to each
other, so that the links between them are right here, on the site and in a checkout; the build
fails if one leads nowhere.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from releasing.llms import ROOT, sections

# The documents, and the files that they show or link.
SOURCES = (
    ":(glob)*.md",
    "docs",
    "benchmarks/capacity.toml",
    "clients/*.md",
    "clients/python/server.json",
    "integrations/*.md",
    "integrations/*/examples/*",
    "LICENSE",
)


def main() -> None:
    """Build the site into the folder named on the command line."""
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        # Without its cache: the configuration lies in another folder each time.
        subprocess.run(["zensical", "build", "--strict"], cwd=folder, check=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(folder) / "site", target)


def stage(folder: Path) -> None:
    """Write the documents and the configuration of the site into an empty folder."""
    listed = ["git", "ls-files", "-z", "--", *SOURCES]
    named = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, named.split("\0")):
        copy = folder / "pages" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
    # JSON is YAML, too.
    (folder / "mkdocs.yml").write_text(json.dumps(configuration()))


def configuration() -> dict[str, Any]:
    """Return the configuration, in the form of MkDocs."""
    nav: list[Any] = [{title: [str(page) for page, _ in pages]} for title, pages in sections()]
    schemes = {"default": "light", "slate": "dark"}
    return {
        "site_name": "UaC – User as Code",
        "docs_dir": "pages",
        # A page's address ends as its file's name does, wherever the site is put.
        "use_directory_urls": False,
        "nav": [{"Documentation": "docs/README.md"}, *nav],
        "theme": {
            "name": "material",
            # The reader's own fonts: no page asks another server for them.
            "font": False,
            "palette": [
                {"media": f"(prefers-color-scheme: {light})", "scheme": scheme}
                for scheme, light in schemes.items()
            ],
            "features": ["navigation.top", "content.code.copy"],
        },
        "plugins": ["search"],
    }


if __name__ == "__main__":
    main()
