"""Reads exports piece by piece: files, folders, zips; JSON arrays, JSON lines, SQLite."""

import json
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from io import TextIOWrapper
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TextIO

from userascode.errors import UserAsCodeError

SQLITE = b"SQLite format 3\0"
# Characters that are read at a time.
CHUNK = 1 << 16
# What reading a damaged file raises; RuntimeError: it is encrypted, or nested too deeply.
_DAMAGES = (
    *(EOFError, NotImplementedError, OSError, RuntimeError, UnicodeError),
    *(sqlite3.Error, zipfile.BadZipFile, zlib.error),
)


class UnreadableExport(UserAsCodeError):
    """A file is not an export that can be read."""


class Value(NamedTuple):
    """A value of an export with the name of its file.

    None for a file that has no values, and the error for one that cannot be read to its end.
    """

    file: str
    value: Any


def names_of(path: Path) -> list[str]:
    """Return the names of the files in a folder or zip, or the file's own, in order.

    Raises UnreadableExport.
    """
    if path.is_dir():
        files = (file for file in path.rglob("*") if file.is_file())
        return sorted(file.relative_to(path).as_posix() for file in files)
    if not zipfile.is_zipfile(path):
        return [path.name]
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(one.filename for one in archive.infolist() if not one.is_dir())
    except _DAMAGES as error:
        raise UnreadableExport(f"{path.name} is damaged: {error}") from None


def values_of(path: Path) -> Iterator[Value]:
    """Yield the values of an export, one in memory at a time.

    Raises UnreadableExport if the export is a single file that is damaged.
    """
    if path.is_dir():
        for name in names_of(path):
            yield from _or_error(name, _values_of_file(path / name, name))
    elif zipfile.is_zipfile(path):
        for name in names_of(path):
            yield from _or_error(name, _values_of_member(path, name))
    elif path.suffix.lower() == ".zip":
        raise UnreadableExport(f"{path.name} is no zip, or is cut off.")
    else:
        yield from _values_of_file(path, path.name)


def _or_error(name: str, values: Iterator[Value]) -> Iterator[Value]:
    """Yield the values of a file among others; if it is damaged, the error after the last one."""
    try:
        yield from values
    except UnreadableExport as error:
        yield Value(name, error)


def _values_of_member(path: Path, name: str) -> Iterator[Value]:
    if not _is_json(name):
        yield Value(name, None)
        return
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as member:
            yield from _values(TextIOWrapper(member, "utf-8-sig"), name)
    except _DAMAGES as error:
        raise UnreadableExport(f"{name} is damaged: {error}") from None


def _values_of_file(path: Path, name: str) -> Iterator[Value]:
    try:
        with path.open("rb") as file:
            is_database = file.read(len(SQLITE)) == SQLITE
        if is_database:
            yield from _rows(path, name)
        elif _is_json(name):
            with path.open(encoding="utf-8-sig") as text:
                yield from _values(text, name)
        else:
            yield Value(name, None)
    except _DAMAGES as error:
        raise UnreadableExport(f"{name} is damaged: {error}") from None


def _is_json(name: str) -> bool:
    return PurePath(name).suffix.lower() in (".json", ".jsonl", ".ndjson", ".af")


def _values(stream: TextIO, name: str) -> Iterator[Value]:
    """Yield the elements of a JSON array, or else JSON documents that follow each other."""
    decoder, buffer, is_array, is_end = json.JSONDecoder(), "", None, False
    while not is_end:
        # More at a time for a value that is larger than what is read.
        chunk = stream.read(max(CHUNK, len(buffer)))
        is_end, buffer = not chunk, buffer + chunk
        while buffer := buffer.lstrip(" \t\r\n," if is_array else " \t\r\n"):
            if is_array is None:
                is_array = buffer[0] == "["
                buffer = buffer[is_array:]
                continue
            if is_array and buffer[0] == "]":
                return
            try:
                value, length = decoder.raw_decode(buffer)
            except ValueError as error:
                if is_end:
                    raise UnreadableExport(f"{name} is no JSON, or is cut off: {error}") from None
                break
            if length == len(buffer) and not is_end:
                break  # a number may go on
            yield Value(name, value)
            buffer = buffer[length:]
    if is_array:
        raise UnreadableExport(f"{name} is cut off: the array has no end")


def _rows(path: Path, name: str) -> Iterator[Value]:
    """Yield the rows of each table of a database, as `{"table": name, …columns}`."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        database.text_factory = lambda text: text.decode(errors="replace")
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            quoted = table.replace('"', '""')
            for row in database.execute(f'SELECT * FROM "{quoted}"'):  # noqa: S608
                yield Value(name, {"table": table, **dict(row)})
