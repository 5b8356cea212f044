"""Compare a user's project with the result of executing the imported module."""

import datetime
import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.harness import Client


def walk(source: str) -> Any:
    """Execute a module and return its variables as plain JSON. This runs in a sandbox."""
    import ast
    import dataclasses
    import enum
    import sys
    import types
    from typing import Any

    module = types.ModuleType("executed")
    sys.modules["executed"] = module
    exec(source, vars(module))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    def plain(value: Any, path: tuple[int, ...]) -> Any:
        if isinstance(value, enum.Enum):
            return {"member": value.name}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            name = type(value).__name__
            if id(value) in path:
                return {"again": name}
            fields = {
                f.name: plain(getattr(value, f.name), (*path, id(value)))
                for f in dataclasses.fields(value)
            }
            return {"class": name, "fields": fields}
        if isinstance(value, dict):
            return {"dict": [[plain(k, path), plain(v, path)] for k, v in value.items()]}
        if isinstance(value, list | tuple):
            return [plain(item, path) for item in value]
        if isinstance(value, set | frozenset):
            return {"set": [plain(item, path) for item in value]}
        if value is None or isinstance(value, bool | int | str):
            return value
        return f"{type(value).__name__} {value}"

    return {
        name: plain(value, ())
        for name, value in vars(module).items()
        if not name.startswith("__")
        and name not in imported
        and not isinstance(value, type | types.FunctionType | types.ModuleType)
    }


def executed(source: str) -> tuple[dict[str, Any] | None, str]:
    """Execute a module in a sandbox; return its variables, or None and the error."""
    from workers.sandbox import runner
    from workers.sandbox.limits import MEBIBYTE, Limits
    from workers.sandbox.results import SandboxError

    code = f"import json\nfrom typing import Any\n{inspect.getsource(walk)}\n"
    code += f"json.dumps(walk({source!r}))"
    limits = Limits(result_bytes=16 * MEBIBYTE)
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    try:
        with runner.open_sandbox() as sandbox:
            answer = sandbox.evaluate(code, now=now, time_zone="UTC", limits=limits)
    except SandboxError as error:
        said = f"{error.error.type}: {error.error.message}" if error.error else str(error)
        return None, said
    found: dict[str, Any] = json.loads(str(answer.value))
    return found, ""


class State:
    """The records in a user's project, as read from the API."""

    def __init__(self, client: Client, user_id: str) -> None:
        self.holders: dict[str, list[dict[str, Any]]] = {}
        self.records: dict[tuple[str, str], list[dict[str, Any]]] = {}
        _, overview = client.get(f"users/{user_id}/state/")
        for domain, about in overview["domains"].items():
            for name in (*about["collections"], *about["singletons"]):
                page: int | None = 1
                rows = self.holders.setdefault(name, [])
                while page:
                    _, body = client.get(f"users/{user_id}/state/{domain}/{name}/?page={page}")
                    rows += body["records"]
                    page = body["next"]
                for row in rows:
                    self.records.setdefault((row["$record"], row["key"]), []).append(row)

    def plain(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """Convert typed JSON to the form that `walk` returns; follow references."""
        if isinstance(value, list):
            return [self.plain(item, path) for item in value]
        if not isinstance(value, dict):
            return f"float {value}" if isinstance(value, float) else value
        if "$ref" in value:
            (row,) = self.records[value["$ref"], value["key"]]
            return self.plain(row, path)
        if "$record" in value or "$object" in value:
            name = value.get("$record") or value["$object"]
            mark = f"{name} {value.get('key')}"
            if "key" in value and mark in path:
                return {"again": name}
            inner = (*path, mark)
            fields = {field: self.plain(one, inner) for field, one in value["fields"].items()}
            return {"class": name, "fields": fields}
        for tag, kind in (("$date", "date"), ("$time", "time"), ("$decimal", "Decimal")):
            if tag in value:
                return f"{kind} {value[tag]}"
        if "$datetime" in value:
            return f"datetime {value['$datetime'].replace('T', ' ')}"
        if "$enum" in value:
            return {"member": value["$enum"].rpartition(".")[2]}
        if "$int" in value:
            return int(value["$int"])
        raise ValueError(f"{value!r:.100} is unknown here")

    def named(self, name: str) -> Any:
        """Return the project's value of a module's variable; raise KeyError if it has none."""
        for variables in self.holders.get("variables", []):
            if name in variables["fields"]:
                return self.plain(variables["fields"][name])
        for holder in (name, name.lower(), f"{name.lower()}_"):
            if holder in self.holders:
                rows = [self.plain(row) for row in self.holders[holder]]
                return rows if len(rows) != 1 else OneOrMany(rows[0])
        for (_, key), rows in self.records.items():
            if key == name:
                return self.plain(rows[0])
        raise KeyError(name)


class OneOrMany:
    """A single record, which may have been a single object or a list of one in the module."""

    def __init__(self, row: Any) -> None:
        self.row = row


def differences(expected: Any, found: Any, place: str) -> Iterator[str]:
    """Yield where two plain values differ, except for changes of form that every import makes."""
    if isinstance(found, OneOrMany):
        found = [found.row] if isinstance(expected, list) else found.row
    if isinstance(expected, dict) and "dict" in expected:
        pairs = expected["dict"]
        if isinstance(found, list) and not all(_is_entry(item) for item in found):
            # The dict became a collection, with its keys as the keys of records.
            expected = [value for _, value in pairs]
        elif isinstance(found, list):
            expected = [{"class": "", "fields": {"name": k, "value": v}} for k, v in pairs]
        else:
            expected = {"class": "", "fields": dict(pairs)}
    if isinstance(expected, dict) and "set" in expected:
        expected = sorted(expected["set"], key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{place}: {len(found)} instead of {len(expected)}"
            return
        for index, (left, right) in enumerate(zip(expected, found, strict=True)):
            yield from differences(left, right, f"{place}[{index}]")
    elif isinstance(expected, dict) and isinstance(found, dict) and "fields" in expected:
        fields = found.get("fields", {})
        if expected["class"].rstrip("_") not in ("", str(found.get("class")).rstrip("_")):
            yield f"{place}: a {found.get('class')} instead of a {expected['class']}"
        for name in expected["fields"].keys() | fields.keys():
            at = name if name in fields else f"{name}_"
            if at not in fields:
                yield f"{place}.{name}: is lost"
            elif name not in expected["fields"] and name.rstrip("_") not in expected["fields"]:
                yield f"{place}.{name}: is new"
            elif name in expected["fields"]:
                yield from differences(expected["fields"][name], fields[at], f"{place}.{name}")
    elif expected != found or type(expected) is not type(found):
        yield f"{place}: {found!r:.60} instead of {expected!r:.60}"


def _is_entry(item: Any) -> bool:
    return isinstance(item, dict) and set(item.get("fields", {})) == {"name", "value"}


def compared(state: State, expected: Mapping[str, Any]) -> list[str]:
    """Return all differences between a module's variables and the project."""
    found = []
    for name, value in expected.items():
        try:
            found += list(differences(value, state.named(name), name))
        except KeyError:
            found.append(f"{name}: is lost")
    return found
