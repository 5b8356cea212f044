"""The process in a sandbox that holds one user's project and answers a host's requests.

Started as `python -s -S -B -m sandbox_image.runner`, it speaks frames (see uac/protocol.py) on
its standard input and output, and ends when its input does. The project is loaded into this
process and stays; every query, constraint, test file and dump runs in a fork of it.
"""

import fcntl
import importlib
import os
import platform
import resource
import select
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from . import determinism
from .answers import anything, check_constraint, check_evaluation, check_tests
from .child import Limits
from .errors import QUERY, describe
from .evaluation import Evaluation, Instant
from .loader import BadRequestError, Project, compile_source, to_bytecode
from .processes import SCRATCH, confinement, kill_descendants, remove_files
from .supervision import HostGoneError, OutOfMemoryError, Report, Supervisor
from .uac import protocol, testing
from .values import size

# What user code may import, and what those modules import late: once confined, a process may not
# reach the standard library's files any more.
PRELOADED = (
    "_strptime",
    "bisect",
    "calendar",
    "collections.abc",
    "copy",
    "dataclasses",
    "decimal",
    "encodings.idna",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "textwrap",
    "typing",
    "unicodedata",
    "zoneinfo",
)

# What a request and the result of a constraint look like.
REHEARSED = {
    "id": 0,
    "op": "constraints",
    "paths": None,
    "now": "2026-01-01T00:00:00+00:00",
    "time_zone": "UTC",
    "limits": {field.name: 1 for field in fields(Limits)},
}
REHEARSED_RESULT = {
    "seconds": 0.1,
    "alerts": [
        {
            "severity": "info",
            "message": "message",
            "key": "key",
            "evidence": [
                {"class": "C", "domain": "d", "collection": "c", "key": "k", "sources": [1, 2]}
            ],
        }
    ],
}

# Above the descriptors that a child uses, so that it cannot keep them by accident.
PRIVATE_DESCRIPTORS = 10


def main() -> None:
    """Serve the host on standard input and output until it leaves."""
    prepare()
    sys.path.remove(str(Path.cwd()))  # where it was started from: no business of user code
    serve(*take_descriptors())


def prepare() -> None:
    """Import all that user code may need, make this package known to it as `uac`, stop clocks."""
    for name in PRELOADED:
        importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__package__}.uac"):
            sys.modules[name.removeprefix(f"{__package__}.")] = module
    assert sys.modules["uac.testing"] is testing
    determinism.prepare()


def take_descriptors() -> tuple[int, int]:
    """Move standard input and output out of user code's reach; return where they are now."""
    requests = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, PRIVATE_DESCRIPTORS)
    answers = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, PRIVATE_DESCRIPTORS)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    return requests, answers


def silence() -> None:
    """Let standard error lead nowhere, as the other two already do."""
    os.dup2(1, 2)


def serve(requests: int, answers: int) -> None:
    """Answer requests until the stream of them ends or breaks."""
    runner = Runner(requests)
    stream = os.fdopen(requests, "rb", closefd=False)
    hello = {
        "hello": protocol.VERSION,
        "python": platform.python_version(),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        **confinement(),
    }
    silence()  # until here, what goes wrong can be read there
    try:
        send(answers, hello)
        while (request := protocol.read_frame(stream.read)) is not None:
            send(answers, {**runner.answer(request), "id": request.get("id")})
            runner.tidy()  # which nobody has to wait for
    except (BrokenPipeError, HostGoneError, OutOfMemoryError, protocol.ProtocolError):
        return


class Runner:
    """The requests that the protocol knows, one method each."""

    def __init__(self, host_descriptor: int) -> None:
        self.requests = select.poll()
        self.requests.register(host_descriptor, select.POLLIN)
        self.project = Project()
        self.evaluation = Evaluation(self.project)
        self.supervisor = Supervisor(host_descriptor, self)
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "compile": self.compile,
            "load": self.load,
            "evaluate": self.evaluate,
            "constraints": self.constraints,
            "tests": self.tests,
            "dump": self.dump,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, without its id."""
        operation = self.operations.get(str(request.get("op")))
        try:
            if operation is None:
                raise BadRequestError("unknown op")
            return operation(request)
        except (BadRequestError, KeyError, TypeError, ValueError) as error:
            message = protocol.storable(f"bad request: {type(error).__name__}: {error}"[:1000])
            return {"outcome": "protocol_error", "message": message}

    def tidy(self) -> None:
        """End what the last request left, and have a child ready for the next."""
        self.supervisor.sweep()
        if self.project.files:
            self.evaluation.prepare()
            self.supervisor.make_ready()
            if not self.requests.poll(0):
                rehearse()

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Turn sources into bytecode, in children: a compiler can be made to exhaust the memory."""
        files = _texts(request["files"])
        works = [{"op": "compile", "item": path, "source": files[path]} for path in sorted(files)]
        limits = Limits.of(request["limits"])
        report = self.supervisor.run(works, limits, anything, together=True)
        bytecode = {result["item"]: result.get("result") for result in report.results}
        failed = [result for result in report.results if result["outcome"] != "ok"]
        return _answer(report, failed[0] if failed else {"result": {"bytecode": bytecode}})

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load files into this process; the host watches the time that it takes."""
        limits = Limits.of(request["limits"])
        sources, bytecode = _texts(request["sources"]), _texts(request["bytecode"])
        removed = _paths(request["removed"])
        self.supervisor.forget()
        self.evaluation = Evaluation(self.project)
        started, cpu = time.monotonic(), time.process_time()
        outcome: dict[str, Any]
        try:
            with _limited_load(limits.memory_bytes):
                executed = self.project.update(sources, bytecode, removed)
            modules = sum(1 for _ in self.project.in_domains())
            outcome = {"result": {"modules": modules, "executed": executed}}
        except BadRequestError:
            raise
        except MemoryError:
            message = f"the project needs more than {size(limits.memory_bytes)} of memory"
            outcome = {"outcome": "out_of_memory", "message": message}
        except BaseException as error:
            told = describe(error, {*self.project.files, *sources, *bytecode})
            outcome = {"outcome": "user_error", "message": told["message"], "error": told}
        finally:
            kill_descendants()
            remove_files()
        report = Report(
            seconds=time.monotonic() - started,
            cpu_seconds=time.process_time() - cpu,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        return _answer(report, outcome)

    def evaluate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a query."""
        work = {"op": "evaluate", "item": QUERY, "code": str(request["code"]), **_moment(request)}
        report = self.supervisor.run([work], Limits.of(request["limits"]), check_evaluation)
        return _answer(report, report.results[0])

    def constraints(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run constraints; an error of one is in its own result."""
        moment = _moment(request)
        works = [
            {"op": "constraint", "item": path, **moment}
            for path in self._selected("constraints", request)
        ]
        limits = Limits.of(request["limits"])
        # What one writes to a folder, the next one would find.
        together = self.evaluation.prepare() and SCRATCH is None
        report = self.supervisor.run(works, limits, check_constraint, together=together)
        results = [
            {
                **(result.get("result") or {"alerts": [], "seconds": 0.0}),
                "path": result["item"],
                "error": _error(result),
            }
            for result in report.results
        ]
        return _answer(report, {"result": results})

    def tests(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run tests; an error of one is in its own result."""
        works = [{"op": "tests", "item": path} for path in self._selected("tests", request)]
        report = self.supervisor.run(works, Limits.of(request["limits"]), check_tests)
        results = []
        for result in report.results:
            if result["outcome"] == "ok":
                results.extend(result["result"])
            else:
                results.append({"name": result["item"], "error": _error(result)})
        return _answer(report, {"result": results})

    def dump(self, request: dict[str, Any]) -> dict[str, Any]:
        """Tell what is loaded."""
        paths = None if request["paths"] is None else self._selected("domains", request)
        works = [{"op": "dump", "item": "dump", "paths": paths}]
        report = self.supervisor.run(works, Limits.of(request["limits"]), anything)
        return _answer(report, report.results[0])

    def _selected(self, folder: str, request: dict[str, Any]) -> list[str]:
        paths = request["paths"]
        return self.project.select(folder, None if paths is None else _paths(paths))

    # -- In a child -------------------------------------------------------------------------------

    def make_ready(self) -> None:
        """See Performer."""
        self.evaluation.make_ready()

    def perform(self, work: dict[str, Any], limits: Limits) -> Any:
        """See Performer."""
        evaluation, item = self.evaluation, work["item"]
        match work["op"]:
            case "compile":
                return to_bytecode(compile_source(item, work["source"]))
            case "evaluate":
                return evaluation.evaluate(work["code"], _instant(work), limits)
            case "constraint":
                return evaluation.run_constraint(item, _instant(work))
            case "tests":
                return evaluation.run_test_file(item)
            case "dump":
                return evaluation.dump(work["paths"], limits)

    def is_as_before(self) -> bool:
        """See Performer."""
        return self.evaluation.is_as_before()

    def user_files(self, item: str) -> Container[str]:
        """See Performer."""
        return {QUERY, item, *self.project.files}


def rehearse() -> None:
    """Do in vain what every request needs.

    After a fork, whichever process first touches a page that both have waits for a copy of it: so
    it is done now, while nobody waits.
    """
    request = protocol.decode(protocol.encode_frame(REHEARSED)[protocol.HEADER_BYTES :])
    limits, moment = Limits.of(request["limits"]), _moment(request)
    protocol.encode_frame({"works": [moment], "limits": asdict(limits)})
    report = Report(check_constraint)
    line = protocol.encode_frame({"outcome": "ok", "result": REHEARSED_RESULT})
    taken = report.take("", line[protocol.HEADER_BYTES :], limits)
    protocol.encode_frame(_answer(report, {"result": [{**taken, "error": _error(taken)}]}))


def _answer(report: Report, outcome: dict[str, Any]) -> dict[str, Any]:
    return {
        "outcome": outcome.get("outcome", "ok"),
        "message": outcome.get("message", ""),
        "error": outcome.get("error"),
        "result": outcome.get("result"),
        **report.usage(),
    }


def _error(result: dict[str, Any]) -> dict[str, Any] | None:
    """What went wrong with one of several items, as the error object; None if nothing did."""
    if result["outcome"] == "ok":
        return None
    return result.get("error") or {
        "type": result["outcome"],
        "message": result["message"],
        "path": result["item"],
        "line": None,
        "traceback": "",
    }


def _instant(work: dict[str, Any]) -> Instant:
    return Instant.of(work["now"], work["time_zone"])


def _moment(request: dict[str, Any]) -> dict[str, Any]:
    """What a request says of the instant, which is found to be one."""
    _instant(request)
    return {name: request[name] for name in ("now", "time_zone")}


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise BadRequestError("files are an object of texts")
    return value


def _paths(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
        raise BadRequestError("paths are a list of texts")
    return value


@contextmanager
def _limited_load(memory_bytes: int) -> Iterator[None]:
    """Let what is executed here take so much memory and start no process, until it is over."""
    before = {
        kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC)
    }
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, before[resource.RLIMIT_AS][1]))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, before[resource.RLIMIT_NPROC][1]))
    try:
        yield
    finally:
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Write one frame."""
    view = memoryview(protocol.encode_frame(message))
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
