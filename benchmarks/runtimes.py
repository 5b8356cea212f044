"""Time a sandbox under each of the OCI runtimes in docs/runtimes.md that the engine has.

In every round, the runtimes take turns at three operations: starting a container; loading the
project of the benchmark `sandbox` from bytecode into a container that is ready, and running its
constraints; and then running a query on that project.
"""

import datetime
import os
import statistics
import time
from collections.abc import Iterator

import django

from benchmarks.harness import Row, parser, percentiles, report
from benchmarks.sandbox import PROJECT

RUNTIMES = ("runc", "crun", "runsc")
# Time allowed for the work that a container does after it has become ready or has sent an answer.
SETTLING_SECONDS = 0.1
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, rounds=(30, 1)).parse_args()
    os.environ |= {
        "UAC_ENVIRONMENT": "development",
        "UAC_SANDBOX_RUNNER": "docker",
        "DJANGO_SETTINGS_MODULE": "uac_site.settings",
    }
    django.setup()
    import docker as engine
    from django.test import override_settings

    from workers.sandbox import docker

    there = [name for name in RUNTIMES if name in engine.from_env().info()["Runtimes"]]
    with docker.start() as sandbox:
        bytecode = sandbox.compile(PROJECT)

    def measure() -> Iterator[tuple[str, float]]:
        before = time.perf_counter()
        sandbox = docker.start()
        yield "start", time.perf_counter() - before
        time.sleep(SETTLING_SECONDS)
        before = time.perf_counter()
        sandbox.load(bytecode=bytecode)
        ran = sandbox.run_constraints(now=NOW, time_zone="UTC")
        yield "fresh: load, constraints", time.perf_counter() - before
        assert all(result.error is None for result in ran.results)
        time.sleep(SETTLING_SECONDS)
        before = time.perf_counter()
        sandbox.evaluate("sum(trip.cost for trip in trips)", now=NOW, time_zone="UTC")
        yield "resident: query", time.perf_counter() - before
        sandbox.close()

    times: dict[tuple[str, str], list[float]] = {}
    for number in range(asked.rounds + 1):
        for name in there:
            with override_settings(UAC_SANDBOX_RUNTIME=name):
                for step, seconds in measure():
                    if number:  # the first round only warms up
                        times.setdefault((step, name), []).append(seconds)
    rows: list[Row] = [
        {
            "step": step,
            "runtime": name,
            "n": len(seconds),
            **percentiles(seconds, "p{} ms"),
            "x runc": round(statistics.median(seconds) / statistics.median(times[step, "runc"]), 2),
        }
        for (step, name), seconds in sorted(times.items())
    ]
    settings = {"rounds": asked.rounds, "runtimes": there}
    report("runtimes", settings=settings, rows=rows, figures={}, path=asked.json)


if __name__ == "__main__":
    main()
