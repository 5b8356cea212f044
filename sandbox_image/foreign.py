"""Execute foreign projects unmodified, and read their typed objects.

Everything here runs in a forked child that exits afterwards. The files are not on disk: only this
process sees them, under `ROOT`, whichever function it uses to access the files. Foreign code may
ask for the time and for random numbers; it always gets the time of the run and the same sequence of
numbers.
"""

import dataclasses
import datetime
import importlib
import inspect
import io
import uuid
from collections.abc import Mapping
from importlib import machinery, util
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from .errors import describe
from .foreign_modules import execute_file
from .foreign_objects import read_objects
from .foreign_surroundings import ROOT, settle
from .loader import BadRequestError
from .uac import protocol
from .values import NotAValueError, ResultLimitError

# Imported here in advance: a foreign project may import these modules once its confined process can
# no longer find the standard library's files.
NEEDED = (importlib, io, machinery, util, uuid)


def perform(work: dict[str, Any]) -> dict[str, Any]:
    """Read the typed objects in the files, or run one foreign constraint.

    An error in the code is returned with its path and line in the files.
    """
    files: dict[str, str] = work["files"]
    now = datetime.datetime.fromisoformat(work["now"]).astimezone(ZoneInfo(work["time_zone"]))
    settle(files, now)
    names = {f"{ROOT}/{path}" for path in files}
    try:
        match work["task"]:
            case "read":
                return {"graph": read_objects(files, work["entries"])}
            case "check":
                return {"alerts": _check(work["entries"][0], now)}
        raise BadRequestError("unknown task")
    except (MemoryError, ResultLimitError, NotAValueError, BadRequestError, SystemExit):
        raise
    except BaseException as error:
        told = describe(error, names)
        if told["path"] is not None:
            told["path"] = told["path"].removeprefix(f"{ROOT}/")
        return {"error": {**told, "traceback": told["traceback"].replace(f"{ROOT}/", "")}}


def _check(path: str, now: datetime.datetime) -> list[dict[str, Any]]:
    """Call a module's `check_constraints(current_time)` or `check(project_path)`; return alerts."""
    module = execute_file(path)
    for name in ("check_constraints", "check"):
        function = getattr(module, name, None)
        if callable(function):
            break
    else:
        raise NotAValueError(f"{path} has no check(project_path) or check_constraints(time)")
    given = [
        _argument(parameter, now)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    found = function(*given)
    if found is None:
        return []
    if isinstance(found, (str, bytes, dict)) or not hasattr(found, "__iter__"):
        found = [found]
    return [_alert(alert) for alert in found]


def _argument(parameter: inspect.Parameter, now: datetime.datetime) -> object:
    name = parameter.name
    if any(word in name for word in ("path", "project", "root", "dir")):
        return Path(ROOT) if "Path" in str(parameter.annotation) else ROOT
    wanted = str(parameter.annotation)
    if "datetime.datetime" in wanted or wanted.endswith("datetime'>") or wanted == "datetime":
        return now
    if wanted in ("date", "datetime.date") or "datetime.date'" in wanted:
        return now.date()
    return now.date().isoformat()


def _alert(value: object) -> dict[str, Any]:
    """Return an alert as an object with text values.

    The field names are the foreign project's own.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, (tuple, list)):
        value = dict(zip(("severity", "message"), value, strict=False))
    if not isinstance(value, Mapping):
        value = {"message": value}
    return {
        protocol.storable(str(name))[:100]: protocol.storable(
            part if isinstance(part, str) else str(part)
        )[:10_000]
        for name, part in list(value.items())[:50]
    }
