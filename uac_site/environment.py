"""The variables that the settings are read from."""

from environ.fileaware_mapping import FileAwareMapping


class FilesWithoutLineEnd(FileAwareMapping):  # type: ignore[misc] # it has no types
    """The environment, in which `NAME_FILE` names a file that holds the value of `NAME`.

    Editors and `echo` end a file with a line end, which no value has. An empty file is none.
    """

    def __getitem__(self, key: str) -> str:
        """Return the value of a variable; KeyError if there is neither it nor a file."""
        value: str = super().__getitem__(key)
        if self.env.get(f"{key}_FILE"):
            value = value.rstrip("\r\n") or self.env[key]
        return value
