"""The host's end of the protocol: a sandbox behind a byte channel, whichever runner is in use.

Every response is checked before it is used: its size before it is read, then its nesting depth, ID
and structure. If a response fails a check, the sandbox is destroyed.
"""

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memory.project.errors import RunError
from memory.project.paths import is_own_constraint
from sandbox_image.uac import protocol
from sandbox_image.uac.protocol import ProtocolError
from workers.sandbox.answers import (
    read_constraint_result,
    read_error,
    read_forecast,
    read_pair,
    read_rests_on,
    read_usage,
    take_field,
    take_integer,
    take_objects,
)
from workers.sandbox.exchange import Channel, FrameExchange
from workers.sandbox.limits import (
    COMPILE_LIMITS,
    COMPILED_BYTES,
    DEFAULT_LIMITS,
    DUMP_LIMITS,
    LOAD_LIMITS,
    Limits,
    parts_of,
)
from workers.sandbox.metrics import measured
from workers.sandbox.results import (
    Bindings,
    ConstraintRun,
    Dump,
    Evaluation,
    ForecastRun,
    Loaded,
    SandboxError,
    TestResult,
    TestRun,
)

HELLO_BYTES = 4096
START_SECONDS = 20.0
# The runner enforces the limits on its children; the host waits this many seconds longer before it
# gives up on the runner. Only the host limits how long loading may take.
GRACE_SECONDS = 5.0
# Maximum size of everything in a response except the result: printed output, an error, and the
# frame around them.
ANSWER_OVERHEAD_BYTES = 512 * 1024

# Outcomes that mean that user code was stopped from outside. After any of these, the sandbox is not
# reused.
STOPPED = frozenset({"timeout", "out_of_memory", "killed", "protocol_error"})
# Maximum number of values in a response; this many values take at most 100 MB of memory. The
# response's size in bytes is bounded by the limits for the kind of request.
MAX_VALUES = 1_000_000
MAX_COMPILED_VALUES = 100  # plus one value per file, for its bytecode


class Sandbox:
    """A sandbox for one user, behind a byte channel.

    Every method raises SandboxError if its request fails. Only one thread at a time may use a
    sandbox.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        runner_name: str,
        image_digest: str,
        hash_seed: int,
        memory_bytes: int | None = None,
    ) -> None:
        """Wait for the runner's hello; raise SandboxError if it is missing or not as expected.

        No request gets more memory than `memory_bytes`, whatever the request's limits are.
        """
        self.runner_name = runner_name
        self.image_digest = image_digest  # bytecode compiled here loads wherever it is the same
        self._frames = FrameExchange(channel)
        self._memory_bytes = memory_bytes
        self._spent = False
        self._id = 0
        self._coming: dict[str, Any] | None = None
        self.hello = self._frames.exchange(None, START_SECONDS, HELLO_BYTES, HELLO_BYTES)
        if self.hello.get("hello") != protocol.VERSION or self.hello.get("hash_seed") != str(
            hash_seed
        ):
            raise self._frames.broken(
                "protocol_error",
                f"the runner reports {self.hello}, not version {protocol.VERSION} and seed"
                f" {hash_seed}: rebuild its image from this release",
            )

    @property
    def alive(self) -> bool:
        """False once the sandbox has failed (was killed or broke the protocol) or been closed."""
        return self._frames.alive

    @property
    def spent(self) -> bool:
        """True if user code had to be stopped: the sandbox still works, but won't be reused."""
        return self._spent

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Destroy the sandbox and everything in it; may be called more than once."""
        self._frames.close()

    @measured("compile")
    def compile(
        self, files: Mapping[str, str], *, limits: Limits = COMPILE_LIMITS
    ) -> dict[str, str]:
        """Compile sources (path → text) without executing them; return opaque bytecode for `load`.

        If a file does not compile, SandboxError is raised with the outcome "user_error" and the
        file's path and line.
        """
        sizes = {path: len(source) for path, source in files.items()}
        compiled: dict[str, str] = {}
        for part in parts_of(sizes, COMPILED_BYTES):
            compiled |= self._compile({path: files[path] for path in part}, limits)
        return compiled

    def _compile(self, files: Mapping[str, str], limits: Limits) -> dict[str, str]:
        answer = self._request(
            "compile",
            limits,
            limits.total_seconds + GRACE_SECONDS,
            MAX_COMPILED_VALUES + len(files),
            files=dict(files),
        )
        with self._frames.checking():
            bytecode = take_field(take_field(answer, "result", dict), "bytecode", dict)
            if bytecode.keys() != files.keys():
                raise ProtocolError("bytecode for files other than those requested")
            return {path: take_field(bytecode, path, str) for path in bytecode}

    @measured("load")
    def load(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
        limits: Limits = LOAD_LIMITS,
    ) -> Loaded:
        """Load the project into the sandbox: everything at first, later only what has changed.

        Changed files, and modules that import them, are executed again. If a domain's module fails,
        SandboxError is raised with the outcome "user_error", and the previously loaded content
        stays loaded. Constraints and tests run only when requested, so their errors are reported in
        the results of those requests.
        """
        self._coming = None
        answer = self._request(
            "load",
            limits,
            limits.wall_seconds,
            sources=dict(sources or {}),
            bytecode=dict(bytecode or {}),
            removed=list(removed),
        )
        with self._frames.checking():
            result = take_field(answer, "result", dict)
            return Loaded(
                modules=take_integer(result, "modules"),
                executed=take_integer(result, "executed"),
                usage=read_usage(answer),
            )

    def prepare(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
    ) -> None:
        """Have the next request that runs code load these changes first, as `load` would.

        One combined request takes half as long as two separate ones. If the changes cannot be
        loaded, that request raises the error, and the next one tries to load them again.
        """
        self._coming = {
            "sources": dict(sources or {}),
            "bytecode": dict(bytecode or {}),
            "removed": list(removed),
            "limits": self._json(LOAD_LIMITS),
        }

    @property
    def prepared(self) -> bool:
        """True until the changes passed to `prepare` are known to have been loaded."""
        return self._coming is not None

    @measured("evaluate")
    def evaluate(
        self,
        code: str,
        *,
        now: datetime.datetime,
        time_zone: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Evaluation:
        """Run code; return the value of its last statement if that is an expression, else null."""
        answer = self._request(
            "evaluate",
            limits,
            limits.wall_seconds + GRACE_SECONDS,
            code=code,
            **_instant(now, time_zone),
        )
        with self._frames.checking():
            result = take_field(answer, "result", dict)
            if "value" not in result:
                raise ProtocolError("no value")
            protocol.check_typed_json(result["value"])
            ties = take_field(result, "ties", list)
            if not all(type(tie) is str for tie in ties):
                raise ProtocolError("ties are not all str")
            return Evaluation(
                value=result["value"],
                type=take_field(result, "type", str),
                evidence=read_rests_on(take_field(result, "evidence", dict)),
                ties=tuple(ties),
                usage=read_usage(answer),
            )

    @measured("constraints")
    def run_constraints(
        self,
        paths: Sequence[str] | None = None,
        *,
        now: datetime.datetime,
        time_zone: str,
        bindings: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ConstraintRun:
        """Run the constraints (by default, all of them), each on the project as it was loaded.

        The default is all of the project's own constraints, followed by the workspace constraints
        in `bindings`, which lists the collections passed to each of their parameters. If a
        constraint fails, even by being killed or taking too long, its result contains the error,
        and the others still run.
        """
        answer = self._request(
            "constraints",
            limits,
            limits.total_seconds + GRACE_SECONDS,
            paths=None if paths is None else list(paths),
            bindings=dict(bindings or {}),
            **_instant(now, time_zone),
        )
        with self._frames.checking():
            results = tuple(read_constraint_result(item) for item in take_objects(answer, "result"))
            self._note(result.error for result in results)
            answered = [result.path for result in results]
            if (
                answered != list(paths)
                if paths is not None
                else not _are_constraints(answered, bindings)
            ):
                raise ProtocolError("results for constraints other than those requested")
            return ConstraintRun(results=results, usage=read_usage(answer))

    @measured("forecast")
    def forecast(
        self,
        paths: Sequence[str],
        *,
        now: datetime.datetime,
        until: datetime.datetime,
        time_zone: str,
        bindings: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ForecastRun:
        """Predict when these constraints' findings will change if nothing but the clock changes.

        Each constraint is called as often as needed, but for at most half of its `wall_seconds`.
        """
        answer = self._request(
            "forecast",
            limits,
            limits.total_seconds + GRACE_SECONDS,
            paths=list(paths),
            bindings=dict(bindings or {}),
            until=until.astimezone(datetime.UTC).isoformat(),
            **_instant(now, time_zone),
        )
        with self._frames.checking():
            results = tuple(read_forecast(item) for item in take_objects(answer, "result"))
            self._note(result.error for result in results)
            if [result.path for result in results] != list(paths):
                raise ProtocolError("forecasts for constraints other than those requested")
            # Allow one extra day on either side, to cover every time zone.
            day = datetime.timedelta(days=1)
            first, last = (
                (moment.astimezone(datetime.UTC).date() + more).isoformat()
                for moment, more in ((now, -day), (until, day))
            )
            for one in results:
                instants = [*(change.at for change in one.changes), one.until or last]
                if not all(first <= moment[:10] <= last for moment in instants):
                    raise ProtocolError("a forecast for days other than those requested")
            return ForecastRun(results=results, usage=read_usage(answer))

    @measured("tests")
    def run_tests(
        self, paths: Sequence[str] | None = None, *, limits: Limits = DEFAULT_LIMITS
    ) -> TestRun:
        """Run the tests in these files (by default, in all); the results include failures.

        Each file runs on the project as it was loaded.
        """
        answer = self._request(
            "tests",
            limits,
            limits.total_seconds + GRACE_SECONDS,
            paths=None if paths is None else list(paths),
        )
        with self._frames.checking():
            results = tuple(
                TestResult(
                    name=take_field(item, "name", str),
                    error=read_error(item.get("error")),
                    same_evidence=read_pair(item.get("same_evidence")),
                )
                for item in take_objects(answer, "result")
            )
            self._note(result.error for result in results)
            files = {result.name.partition("::")[0] for result in results}
            if paths is not None and not files <= set(paths):
                raise ProtocolError("results for tests other than those requested")
            return TestRun(results=results, usage=read_usage(answer))

    @measured("dump")
    def dump(self, paths: Sequence[str] | None = None) -> Dump:
        """Read back the loaded records from these state and shard files (from all files if None).

        Request at most DUMPED_BYTES of files at a time, since a response may contain at most a
        million values.
        """
        answer = self._request(
            "dump",
            DUMP_LIMITS,
            DUMP_LIMITS.wall_seconds + GRACE_SECONDS,
            paths=None if paths is None else list(paths),
        )
        with self._frames.checking():
            result = take_field(answer, "result", dict)
            counts = take_field(result, "counts", dict)
            for domain in counts:
                for collection in take_field(counts, domain, dict):
                    take_integer(counts[domain], collection)
            records = take_field(result, "records", dict)
            if paths is not None and records.keys() != set(paths):
                raise ProtocolError("records from files other than those requested")
            for path in records:
                for collection in take_field(records, path, dict):
                    take_objects(records[path], collection)
                    protocol.check_typed_json(records[path][collection])
            return Dump(counts=counts, records=records, usage=read_usage(answer))

    def _request(
        self,
        operation: str,
        limits: Limits,
        seconds: float,
        most: int = MAX_VALUES,
        /,
        **parameters: Any,
    ) -> dict[str, Any]:
        """Send a request and return the response; raise SandboxError unless the outcome is "ok".

        The response may contain at most `most` values.
        """
        self._id += 1
        loads = operation in ("compile", "load")
        if self._coming is not None and not loads:
            parameters["load"] = self._coming
            seconds += LOAD_LIMITS.wall_seconds
        answer = self._frames.exchange(
            {"id": self._id, "op": operation, "limits": self._json(limits), **parameters},
            seconds,
            limits.result_bytes + ANSWER_OVERHEAD_BYTES,
            most,
        )
        with self._frames.checking():
            if type(answer.get("id")) is not int or answer["id"] != self._id:
                raise ProtocolError("its id is not that of the request")
            outcome, message = (
                take_field(answer, "outcome", str),
                take_field(answer, "message", str),
            )
            if "load" in parameters:
                loads = answer.get("loaded") is not True
                if not loads:
                    self._coming = None
                elif outcome == "ok":
                    raise ProtocolError("a response with missing or invalid fields")
            if outcome == "ok":
                return answer
            if outcome not in protocol.OUTCOMES:
                raise ProtocolError("no outcome")
            usage = read_usage(answer) if "stdout" in answer else None
            error = read_error(answer.get("error"))
        self._spent |= outcome in STOPPED
        # Compiling and loading execute no loops in the user's code, so a timeout there means that
        # the machine is slow. And if the runner fails to read a request before any user code has
        # run, user code cannot be to blame.
        ours = loads and outcome in ("timeout", "protocol_error")
        raise SandboxError(outcome, message, error, usage, infrastructure=ours)

    def _json(self, limits: Limits) -> dict[str, Any]:
        """Return the limits as a dictionary, with the memory capped at what the sandbox has."""
        if self._memory_bytes is not None and limits.memory_bytes > self._memory_bytes:
            limits = dataclasses.replace(limits, memory_bytes=self._memory_bytes)
        return vars(limits)

    def _note(self, errors: Iterable[RunError | None]) -> None:
        self._spent |= any(error is not None and error.type in STOPPED for error in errors)


def _instant(now: datetime.datetime, time_zone: str) -> dict[str, str]:
    if now.tzinfo is None:
        raise ValueError("now has no time zone: pass an aware datetime")
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"time_zone {time_zone!r} is not a zone such as 'Europe/Berlin'") from None
    return {"now": now.astimezone(zone).isoformat(), "time_zone": time_zone}


def _are_constraints(paths: Sequence[str], bindings: Bindings | None) -> bool:
    """Return whether the paths are distinct and all name either project or bound constraints."""
    return len(set(paths)) == len(paths) and all(
        is_own_constraint(path) or path in (bindings or ()) for path in paths
    )
