"""Parse the host's requests into plans: lists of tasks with limits."""

from collections.abc import Collection
from typing import Any, NamedTuple

from .answers import (
    Check,
    anything,
    check_constraint,
    check_evaluation,
    check_forecast,
    check_tests,
)
from .child import LOAD, Limits
from .errors import QUERY
from .evaluation import Evaluation, Instant
from .forecasting import Horizon
from .loader import BadRequestError, Project, selected
from .supervision import of_one_side


class Files(NamedTuple):
    """The file changes that a host wants loaded into a project, and the limits on loading them."""

    request: dict[str, Any]
    sources: dict[str, str]
    bytecode: dict[str, str]
    removed: list[str]
    limits: Limits

    @classmethod
    def parse(cls, request: object) -> "Files":
        """Read the files from a request or from its `load` object.

        Raises BadRequestError, KeyError or ValueError if that object is not valid.
        """
        if not isinstance(request, dict):
            raise BadRequestError("files must be an object")
        return cls(
            request={name: request[name] for name in ("sources", "bytecode", "removed", "limits")},
            sources=_texts(request["sources"]),
            bytecode=_texts(request["bytecode"]),
            removed=_paths(request["removed"]),
            limits=Limits.parse(request["limits"]),
        )

    def on(self, project: Project) -> set[str]:
        """Return the paths that the project will contain once these files are loaded into it."""
        return (project.files.keys() - self.removed) | self.sources.keys() | self.bytecode.keys()

    def load_into(self, project: Project) -> dict[str, int]:
        """Load the files; return how many domain modules exist and how many were executed now."""
        executed = project.update(self.sources, self.bytecode, self.removed)
        return {"modules": sum(1 for _ in project.in_domains()), "executed": executed}


class Plan(NamedTuple):
    """The tasks that a request asks for, each with an item name, plus the limits on the tasks.

    If `together` is set, the tasks may share a process as long as none of them changes the loaded
    project. `files`, if any, are loaded first.
    """

    works: list[dict[str, Any]]
    limits: Limits
    check: Check
    together: bool
    files: Files | None

    @property
    def first(self) -> list[dict[str, Any]]:
        """Return the tasks for the first child: as many of the plan's tasks as one child can do."""
        works = of_one_side(self.works) if self.together else self.works[:1]
        if self.files is None:
            return works
        return [{"op": "load", "item": LOAD, **self.files.request, "more": len(works) > 1}, *works]


def plan(request: dict[str, Any], project: Project, evaluation: Evaluation) -> Plan:
    """Return the plan for a request that needs children.

    Raises BadRequestError, KeyError, TypeError or ValueError if the request is not valid.
    """
    files = Files.parse(request["load"]) if "load" in request else None
    paths = project.files.keys() if files is None else files.on(project)
    works: list[dict[str, Any]]
    check: Check
    together = False
    match operation := request.get("op"):
        case "compile":  # in a child, since some source code makes the compiler run out of memory
            texts = _texts(request["files"])
            works = [
                {"op": operation, "item": path, "source": texts[path]} for path in sorted(texts)
            ]
            check, together = anything, True
        case "evaluate":
            code = str(request["code"])
            works = [{"op": operation, "item": QUERY, "code": code, **moment(request)}]
            check = check_evaluation
        case "constraints" | "forecast":
            now = moment(request)
            bindings = _bindings(request.get("bindings", {}))
            constraint_paths = _selected(paths, "constraints", request)
            # The project's own constraints come first, since all constraints share one total time
            # limit.
            if request["paths"] is None:
                constraint_paths += selected(paths, "constraints", sorted(bindings))
            works = [
                {"op": operation, "item": path, "bound": bindings.get(path, {}), **now}
                for path in constraint_paths
            ]
            if operation == "forecast":
                seconds = _share(Limits.parse(request["limits"]), len(works))
                until = {"until": request["until"], "seconds": seconds}
                works = [{**work, **until} for work in works]
                for work in works[:1]:
                    horizon(work)
            together = files is not None or evaluation.shares_processes()
            check = check_forecast if operation == "forecast" else check_constraint
        case "tests":
            works = [{"op": operation, "item": path} for path in _selected(paths, "tests", request)]
            check = check_tests
        case "dump":
            domain_paths = (
                None if request["paths"] is None else _selected(paths, "domains", request)
            )
            works = [{"op": operation, "item": operation, "paths": domain_paths}]
            check = anything
        case _:
            raise BadRequestError("unknown op")
    return Plan(works, Limits.parse(request["limits"]), check, together, files)


def moment(request: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that specify the request's instant, after validating them."""
    instant(request)
    return {name: request[name] for name in ("now", "time_zone")}


def instant(work: dict[str, Any]) -> Instant:
    """Return the instant specified by a request or a task."""
    return Instant.parse(work["now"], work["time_zone"])


def horizon(work: dict[str, Any]) -> Horizon:
    """Return the horizon specified by a task."""
    return Horizon.parse(work["now"], work["until"], work["time_zone"])


def _share(limits: Limits, number: int) -> float:
    """Return how many seconds to spend on forecasting each of `number` constraints.

    The result is well below the time limits that would abort the forecast.
    """
    most = min(limits.wall_seconds, float(limits.cpu_seconds)) / 2
    return min(most, limits.total_seconds * 0.8 / max(number, 1))


def _selected(files: Collection[str], folder: str, request: dict[str, Any]) -> list[str]:
    paths = request["paths"]
    return selected(files, folder, None if paths is None else _paths(paths))


def _bindings(value: object) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the bindings of workspace constraints, after checking that they are objects.

    They map a constraint's path and a parameter name to the collections whose records that
    parameter receives; see `workspace.py`.
    """
    if not isinstance(value, dict):
        raise BadRequestError("bindings must be an object")
    for bound in value.values():
        if not isinstance(bound, dict):
            raise BadRequestError("a constraint's bindings must be an object")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise BadRequestError("files must be an object whose values are texts")
    return value


def _paths(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
        raise BadRequestError("paths must be a list of texts")
    return value
