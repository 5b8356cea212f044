"""Check that every file of the project can be imported, even if it has no tests of its own."""

from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_everything_can_be_imported() -> None:
    """Import every module; one that cannot be imported fails this test with the reason."""
    for folder in ("domains", "constraints"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
