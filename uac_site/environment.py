"""The environment variables that the settings are read from."""

from typing import Any

import environ
from environ.fileaware_mapping import FileAwareMapping

from memory.kernel.settings import environment


class FilesWithoutLineEnd(FileAwareMapping):  # type: ignore[misc] # it has no types
    """The environment, where `NAME_FILE` names a file that contains the value of `NAME`.

    Editors and `echo` end a file with a newline, which isn't part of the value. An empty file is
    treated as missing.
    """

    def __getitem__(self, key: str) -> str:
        """Return a variable's value; raise KeyError if neither it nor its file is set."""
        value: str = super().__getitem__(key)
        if self.env.get(f"{key}_FILE"):
            value = value.rstrip("\r\n") or self.env[key]
        return value


env = environ.Env()
env.ENVIRON = FilesWithoutLineEnd()


def read(name: str) -> Any:
    """Return the value, or else the default, of a variable in the table."""
    setting = environment.SETTINGS[name]
    default = setting.default
    if setting.development is not None and read("UAC_ENVIRONMENT") == "development":
        default = setting.development
    if setting.value_type is list and default:
        return env.list(name, cast=type(default[0]), default=default)
    return getattr(env, setting.value_type.__name__)(name, default=default)
