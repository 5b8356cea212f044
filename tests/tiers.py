"""The second tier: tests that `make test` leaves to `make test-all`, and why each is there.

A test is named by the beginning of its id: a folder, a file, or a test of a file. Nothing is left
out of `make test-all`. A test belongs here if it takes seconds by its nature (whole servers, killed
processes, much data, other runtimes), not because it is slow: make it quick first.
"""

EXTENDED = {
    "whole servers": (
        "tests/acceptance/",
        "tests/chaos/",
        "tests/deployment/",
        "tests/smoke/",
        "tests/integration/embedded/test_services.py",
        "tests/integration/embedded/test_system.py",
        "tests/integration/operation/test_agents.py",
        "tests/integration/operation/test_telemetry.py",
    ),
    "measurements": ("tests/benchmarks/",),
    "processes that are killed, or race with others": (
        "tests/integration/erasure/test_races.py",
        "tests/integration/llm/test_processes.py",
        "tests/integration/log/test_partition.py",
        "tests/integration/mem0/test_rivals.py",
        "tests/integration/merging/test_races.py",
        "tests/integration/operation/test_database_limits.py",
        "tests/integration/operation/test_verify.py",
        "tests/integration/operation/test_verify_checks.py",
        "tests/integration/redaction/test_races.py",
        "tests/integration/work/test_leases_live.py",
    ),
    "images, other runtimes and engines": (
        "tests/integration/sandbox/test_docker_build.py",
        "tests/integration/sandbox/test_docker_restart.py",
        "tests/integration/sandbox/test_doctor.py::test_limits_that_the_runtime_ignores",
        "tests/integration/sandbox/test_runtimes.py",
    ),
    "recorded data, long histories, many examples": (
        "tests/integration/admin/test_scale.py",
        "tests/integration/checkpointing/test_large.py",
        "tests/integration/export/test_git.py",
        "tests/integration/export/test_round_trip.py::test_states_that_a_model",
        "tests/integration/export/test_subject_access.py::test_a_long_log_is_not_held_in_memory",
        "tests/integration/sandbox/test_prepare.py::test_the_first_question_has_as_much_time",
        "tests/integration/sandbox/test_soak.py",
        "tests/integration/time/test_backtest.py::TestWhom",
        "tests/integration/time/test_recorded_clock.py",
        "tests/integration/time/test_same_alerts.py",
        "tests/integration/time/test_year.py",
        "tests/unit/grounding/test_recorded_data.py",
        "tests/unit/library/test_constraint_library.py::TestEach::test_a_step",
        "tests/unit/library/test_scenarios.py",
        "tests/unit/project/test_recorded_data.py",
        "tests/unit/test_capacity.py::test_the_document_has_the_table",
    ),
}

# In a folder of the second tier, but the main loop on one server is what the first tier is for.
FIRST_TIER = ("tests/acceptance/test_main_loop.py",)


def is_extended(test: str) -> bool:
    """Return whether the test with this id is of the second tier."""
    return not test.startswith(FIRST_TIER) and any(map(test.startswith, EXTENDED.values()))


def named() -> list[str]:
    """Return all beginnings of ids that are listed here."""
    return [*FIRST_TIER, *(one for group in EXTENDED.values() for one in group)]
