"""Generate the page that documents all settings: `python -m uac_site.configuration`."""

from pathlib import Path
from typing import Any

from memory.kernel.settings import environment
from memory.kernel.settings.environment import Group, Setting, plain

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
HEAD = """\
# Configuration

Generated from `memory/kernel/settings/environment.py`: `python -m uac_site.configuration`

Settings are environment variables. Each may also be given as `NAME_FILE`, the path of a file that
contains the value; an empty file is treated as unset. If a value is out of range, no process
starts. Where a field is listed, a workspace may override the setting in the admin; a blank field
uses the server's setting.
"""
COLUMNS = """\
| variable | default | unit | range | field | meaning |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the page, generated from `memory.kernel.settings.environment`."""
    return HEAD + "".join(map(_section, environment.GROUPS))


def _section(group: Group) -> str:
    lines = [
        f"| `{one.name}` | {_default(one)} | {one.unit} | {_range(one)} | {_code(one.field)} |"
        f" {one.meaning} |\n"
        for one in group.settings
    ]
    return f"\n## {group.title}\n\n{COLUMNS}{''.join(lines)}"


def _default(setting: Setting) -> str:
    development = _code(_value(setting.development))
    always = _code(_value(setting.default))
    return f"{always}; in development {development}".lstrip("; ") if development else always


def _range(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(map(_code, setting.choices))
    return "; ".join(filter(None, (_bounds(setting), setting.zero and f"0: {setting.zero}")))


def _bounds(setting: Setting) -> str:
    if setting.minimum is None:
        return ""
    least, most = plain(setting.minimum), setting.maximum
    if most is None:
        return f"at least {least}"
    return f"{least} to {_code(most) if isinstance(most, str) else plain(most)}"


def _value(value: Any) -> str:
    """Return a value as it is written in an environment variable."""
    if isinstance(value, list):
        return ",".join(map(_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return plain(value) if isinstance(value, int | float) else str(value or "")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    PAGE.write_text(page())
