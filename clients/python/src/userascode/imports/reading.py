"""Reads exports piece by piece: files, folders, zips; JSON arrays, JSON lines, SQLite."""

import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from io import TextIOWrapper
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TextIO

from userascode.errors import UserAsCodeError

SQLITE = b"SQLite format 3\0"
# Characters that are read at a time.
CHUNK = 1 << 16


class UnreadableExport(UserAsCodeError):
    """A file is not an export that can be read."""


class Value(NamedTuple):
    """A value of an export, or None for a file that has no values, with the name of its file."""

    file: str
    value: Any


def values_of(path: Path) -> Iterator[Value]:
    """Yield the values of an export, one in memory at a time. Raises UnreadableExport."""
    if path.is_dir():
        for file in sorted(one for one in path.rglob("*") if one.is_file()):
            yield from _values_of_file(file, file.relative_to(path).as_posix())
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(one.filename for one in archive.infolist() if not one.is_dir()):
                if not _is_json(name):
                    yield Value(name, None)
                    continue
                with archive.open(name) as member:
                    yield from _values(TextIOWrapper(member, "utf-8-sig"), name)
    else:
        yield from _values_of_file(path, path.name)


def _values_of_file(path: Path, name: str) -> Iterator[Value]:
    with path.open("rb") as file:
        is_database = file.read(len(SQLITE)) == SQLITE
    if is_database:
        yield from _rows(path, name)
    elif _is_json(name):
        with path.open(encoding="utf-8-sig") as text:
            yield from _values(text, name)
    else:
        yield Value(name, None)


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
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            quoted = table.replace('"', '""')
            for row in database.execute(f'SELECT * FROM "{quoted}" ORDER BY rowid'):  # noqa: S608
                yield Value(name, {"table": table, **dict(row)})
