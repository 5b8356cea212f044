"""The process in a sandbox that holds one user's project and answers requests from a host.

Started by the Dockerfile's ENTRYPOINT, it exchanges frames (see uac/protocol.py) over standard
input and output, and exits when its input ends. The project stays loaded in this process;
queries, constraints, test files and dumps run in forked children.
"""

import fcntl
import gc
import importlib
import os
import resource
import select
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

from . import determinism, rehearsal
from .child import Limits, reader
from .errors import QUERY, describe
from .evaluation import Evaluation, Instant
from .library_names import NAMES
from .loader import BadRequestError, Project, compile_source, selected, to_bytecode
from .processes import confinement, kill_descendants, release_memory
from .progress import Report
from .requests import Files, Plan, horizon, instant, moment, plan
from .supervision import HostGoneError, OutOfMemoryError, Supervisor
from .uac import protocol, testing
from .values import size

# Modules that user code may import, plus modules that those import lazily. They are loaded in
# advance, since each child would have to import them again. Anything else costs time at the start
# of every sandbox, and memory in each.
PRELOADED = (
    *NAMES,
    "_strptime",
    "bisect",
    "copy",
    "fractions",
    "heapq",
    "operator",
    "random",
    "string",
    "unicodedata",
)

# How long this process stays idle after it has sent an answer, unless a request arrives earlier, so
# that all processors are free to deliver the answer.
LINGER_SECONDS = 0.002

# This process moves its own file descriptors to this number or above, out of the range that
# children use, so that a child can't keep one of them by accident.
PRIVATE_DESCRIPTORS = 10


def main() -> None:
    """Serve the host on standard input and output until it disconnects; then exit.

    The garbage collector is off until everything is imported: it would find nothing to free.
    """
    prepare()
    del sys.path[0]  # user code must not import from the working directory
    gc.freeze()  # the collector would touch, and so copy, pages that children share
    gc.enable()
    serve(*take_descriptors())
    os._exit(0)  # there is nothing to save, and tidying up the interpreter takes time


def prepare() -> None:
    """Import everything user code may need, register the library as `uac`, and disable clocks."""
    for name in PRELOADED:
        importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__package__}.uac"):
            sys.modules[name.removeprefix(f"{__package__}.")] = module
    assert sys.modules["uac.testing"] is testing
    determinism.prepare()
    release_memory()


def take_descriptors() -> tuple[int, int]:
    """Move standard input and output out of user code's reach; return the new descriptors."""
    requests = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, PRIVATE_DESCRIPTORS)
    answers = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, PRIVATE_DESCRIPTORS)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    return requests, answers


def silence() -> None:
    """Redirect standard error to the null device, like the other two streams."""
    os.dup2(1, 2)


def serve(requests: int, answers: int) -> None:
    """Answer requests until their stream ends or breaks."""
    runner = Runner(requests)
    hello = {
        "hello": protocol.VERSION,
        "python": ".".join(map(str, sys.version_info[:3])),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        **confinement(),
    }
    silence()  # up to this point, errors are visible on standard error
    try:
        send(answers, hello)
        runner.tidy()
        while (request := protocol.read_frame(reader(requests))) is not None:
            send(answers, {**runner.answer(request), "id": request.get("id")})
            runner.tidy()  # after the answer, so that nobody has to wait for it
    except GONE:
        return


# Errors after which the runner exits and the host starts a new runner.
GONE = (
    BrokenPipeError,
    HostGoneError,
    OutOfMemoryError,
    protocol.ProtocolError,
)


class LoadFailedError(Exception):
    """The files sent with a request could not be loaded."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["message"])
        self.answer = answer


class Runner:
    """Answers the host's requests, and performs their tasks in children."""

    def __init__(self, host_descriptor: int) -> None:
        self.requests = select.poll()
        self.requests.register(host_descriptor, select.POLLIN)
        self.project = Project()
        self.rehearsed = rehearsal.files()
        self.coming: Files | None = None  # sent with a request, not loaded in this process yet
        self.evaluation = Evaluation(self.project)
        self.supervisor = Supervisor(host_descriptor, self)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, without its id."""
        try:
            if request.get("op") == "load":
                return self.load(Files.parse(request))
            planned = plan(request, self.project, self.evaluation)
            answer = ANSWERS[request["op"]](self._run(planned))
        except LoadFailedError as error:
            return {**error.answer, "loaded": False}
        except (BadRequestError, KeyError, TypeError, ValueError) as error:
            message = protocol.storable(f"bad request: {type(error).__name__}: {error}"[:1000])
            return {"outcome": "protocol_error", "message": message}
        return answer if planned.files is None else {**answer, "loaded": True}

    def tidy(self) -> None:
        """Clean up after the last request, and prepare a child for the next one."""
        self.requests.poll(LINGER_SECONDS * 1000)
        self.supervisor.sweep()
        if self.coming is not None and self.load(self.coming)["outcome"] != "ok":
            raise HostGoneError  # the host thinks that the files are loaded, so exit
        self.evaluation.prepare()
        self.supervisor.make_ready()
        if not self.requests.poll(0):
            self.rehearse()

    def rehearse(self) -> None:
        """Run the warm-up request; see rehearsal.py and Supervisor.rehearse."""
        sent = {**rehearsal.REQUEST, "load": self.rehearsed}
        request = protocol.decode(protocol.encode_frame(sent)[protocol.HEADER_BYTES :])
        files = Files.parse(request["load"])
        paths = selected(files.on(self.project), "constraints", None)
        work = {"op": "rehearse", "item": paths[0], **moment(request), **files.request}
        results = self.supervisor.rehearse([work], Limits.parse(request["limits"]))
        protocol.encode_frame(_answer(Report(), {"result": results}))

    def load(self, files: Files) -> dict[str, Any]:
        """Load files into this process; return the answer. Only the host limits the load time."""
        self.supervisor.forget()
        self.evaluation = Evaluation(self.project)
        self.coming = None
        started, cpu = time.monotonic(), time.process_time()
        outcome: dict[str, Any]
        try:
            with _limited_load(files.limits.memory_bytes):
                outcome = {"result": files.load_into(self.project)}
        except BadRequestError:
            raise
        except MemoryError:
            message = f"the project needs more than {size(files.limits.memory_bytes)} of memory"
            outcome = {"outcome": "out_of_memory", "message": message}
        except BaseException as error:
            description = describe(error, {*self.project.files, *files.sources, *files.bytecode})
            outcome = {
                "outcome": "user_error",
                "message": description["message"],
                "error": description,
            }
        finally:
            for texts in (files.sources, files.bytecode):
                texts.clear()  # files may be large, and later children would inherit them
            self.evaluation = Evaluation(self.project)  # discards indexes built during the load
            kill_descendants()
        report = Report(
            load_seconds=time.monotonic() - started,
            seconds=time.monotonic() - started,
            cpu_seconds=time.process_time() - cpu,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        return _answer(report, outcome)

    def _run(self, plan: Plan) -> Report:
        """Perform a plan's tasks in children and report the outcomes."""
        report = Report(plan.check)
        together = plan.together
        if plan.files is not None:
            report = self._load_and_run(plan, plan.files)
            together = together and self.evaluation.shares_processes()
        return self.supervisor.run(plan.works, plan.limits, report, together=together)

    def _load_and_run(self, plan: Plan, files: Files) -> Report:
        """Have the first child load the files and do its tasks; load them into this process later.

        That way, nobody has to wait for a fork after the load. If the child leaves tasks undone,
        the files are loaded into this process right away. Raises LoadFailedError if that fails.
        """
        self.coming = files
        report = Report(plan.check)
        self.supervisor.run(plan.first, plan.limits, report, together=True, once=True)
        if report.results and report.results[0]["outcome"] == "ok":
            elapsed = time.monotonic() - report.started
            report.load_seconds = min(report.results.pop(0)["result"], elapsed)
        else:
            report = Report(plan.check)
        if len(report.results) < len(plan.works):
            answer = self.load(files)
            if answer["outcome"] != "ok":
                raise LoadFailedError(answer)
            report.load_seconds += answer["load_seconds"]
        return report

    # -- The methods of Performer, which children call --------------------------------------------

    def make_ready(self) -> None:
        """See Performer."""
        self.evaluation.make_ready()

    def perform(self, work: dict[str, Any], limits: Limits) -> Any:
        """See Performer."""
        evaluation, item = self.evaluation, work["item"]
        match work["op"]:
            case "compile":
                return to_bytecode(compile_source(item, work["source"]))
            case "load":
                return self._load_here(Files.parse(work), more=work["more"])
            case "rehearse":
                return self._rehearse(instant(work), limits)
            case "evaluate":
                return evaluation.evaluate(work["code"], instant(work), limits)
            case "constraints":
                return evaluation.run_constraint(item, instant(work), limits, work["bound"])
            case "forecast":
                return evaluation.forecast_constraint(
                    item, horizon(work), limits, work["bound"], work["seconds"]
                )
            case "tests":
                return evaluation.run_test_file(item)
            case "dump":
                return evaluation.dump(work["paths"], limits)

    def is_as_before(self, done: dict[str, Any]) -> bool:
        """See Performer."""
        return done["op"] in ("compile", "load") or self.evaluation.is_as_before()

    def _load_here(self, files: Files, *, more: bool) -> float:
        """Load files into this process for the remaining tasks; return how many seconds it took."""
        started = time.monotonic()
        self.evaluation = Evaluation(self.project)
        files.load_into(self.project)
        self.evaluation = Evaluation(self.project)  # discards indexes built during the load
        if more and self.evaluation.shares_processes():
            self.evaluation.make_ready()
        return time.monotonic() - started

    def _rehearse(self, instant: Instant, limits: Limits) -> list[Any]:
        if self.project.files:
            return self.evaluation.rehearse(instant, limits)
        # The next request will bring a project, so rehearse loading one and then unload it.
        self.evaluation = Evaluation(self.project)
        Files.parse(self.rehearsed).load_into(self.project)
        self.evaluation.prepare()
        (path,) = selected(self.project.files, "constraints", None)
        alerts = self.evaluation.run_constraint(path, instant, limits, {})
        results = [alerts, *self.evaluation.rehearse(instant, limits)]
        self.project.update({}, {}, list(self.project.files), collect=False)
        self.evaluation = Evaluation(self.project)
        return results

    def user_files(self, item: str) -> Container[str]:
        """See Performer."""
        return {QUERY, item, *self.project.files}


def _answer(report: Report, outcome: dict[str, Any]) -> dict[str, Any]:
    return {
        "outcome": outcome.get("outcome", "ok"),
        "message": outcome.get("message", ""),
        "error": outcome.get("error"),
        "result": outcome.get("result"),
        **report.usage(),
    }


def _error(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error object for an item's result; None if the item succeeded."""
    if result["outcome"] == "ok":
        return None
    return result.get("error") or {
        "type": result["outcome"],
        "message": result["message"],
        "path": result["item"],
        "line": None,
        "traceback": "",
    }


# Functions that turn a report (the outcomes of all tasks, in order) into the request's answer.


def _the_only_one(report: Report) -> dict[str, Any]:
    return _answer(report, report.results[0])


def _compiled(report: Report) -> dict[str, Any]:
    bytecode = {result["item"]: result.get("result") for result in report.results}
    failed = [result for result in report.results if result["outcome"] != "ok"]
    return _answer(report, failed[0] if failed else {"result": {"bytecode": bytecode}})


_NO_ALERTS = {"alerts": [], "left_out": 0, "takes_now": False, "seconds": 0.0}


def _constraints(report: Report) -> dict[str, Any]:
    """Answer with the results for all constraints, including each constraint's error, if any."""
    results = [
        {
            **(result.get("result") or _NO_ALERTS),
            "path": result["item"],
            "error": _error(result),
        }
        for result in report.results
    ]
    return _answer(report, {"result": results})


def _forecast(report: Report) -> dict[str, Any]:
    """Answer with the forecasts for all constraints, including each constraint's error, if any."""
    results = [
        {**(result.get("result") or {}), "path": result["item"], "error": _error(result)}
        for result in report.results
    ]
    return _answer(report, {"result": results})


def _tests(report: Report) -> dict[str, Any]:
    """Answer with all test results; a test file that failed as a whole gets a single result."""
    results = []
    for result in report.results:
        if result["outcome"] == "ok":
            results.extend(result["result"])
        else:
            results.append({"name": result["item"], "error": _error(result)})
    return _answer(report, {"result": results})


ANSWERS: dict[str, Callable[[Report], dict[str, Any]]] = {
    "compile": _compiled,
    "evaluate": _the_only_one,
    "constraints": _constraints,
    "forecast": _forecast,
    "tests": _tests,
    "dump": _the_only_one,
}


@contextmanager
def _limited_load(memory_bytes: int) -> Iterator[None]:
    """Limit memory and forbid new processes while this process executes the project's code."""
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
    """Write a message as one frame."""
    view = memoryview(protocol.encode_frame(message))
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
