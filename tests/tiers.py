"""The second tier: tests that `make test` leaves to `make test-all`, and the reason for each.

A test is named by the beginning of its id: a folder, a file, or a test of a file. `make test-all`
runs everything. A test belongs here if it takes seconds by its nature (whole servers, killed
processes, much data, other runtimes), not because it is slow: make it fast first. Of tests with
very many similar cases, such as each screen or each wrong field, most cases belong here.
"""

import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]

EXTENDED = {
    "whole servers": (
        "tests/acceptance/",
        "tests/chaos/",
        "tests/deployment/",
        "tests/integration/embedded/test_services.py",
        "tests/integration/embedded/test_system.py",
        "tests/integration/operation/test_agents.py",
        "tests/integration/operation/test_telemetry.py",
    ),
    "measurements": (
        "tests/benchmarks/",
        "tests/integration/sandbox/test_lifecycle.py::test_nothing_leaks_over_many_evaluations",
        "tests/integration/search/test_followups.py::test_most_follow_ups_are_found",
        "tests/integration/search/test_paraphrases.py",
        "tests/unit/search/test_embeddings.py::test_texts_of_many_tokens_take_little_memory",
    ),
    "processes that are killed, or race with others": (
        "tests/integration/alerts/test_rivals.py",
        "tests/integration/api/test_rates.py::test_several_processes_share_a_rate",
        "tests/integration/erasure/test_deadlocks.py",
        "tests/integration/erasure/test_races.py",
        "tests/integration/llm/test_processes.py",
        "tests/integration/mem0/test_rivals.py",
        "tests/integration/merging/test_races.py",
        "tests/integration/operation/test_database_limits.py",
        "tests/integration/operation/test_verify.py",
        "tests/integration/operation/test_verify_checks.py",
        "tests/integration/races/test_models.py",
        "tests/integration/redaction/test_races.py",
        "tests/integration/sandbox/test_docker.py::test_a_killed_worker_leaves_nothing_that_runs",
        "tests/integration/sandbox/test_docker_attacks.py::test_fork_bomb_in_loaded_code",
        "tests/integration/sandbox/test_docker_attacks.py::test_memory_bomb_of_many_is_contained",
        "tests/integration/sandbox/test_lifecycle.py::test_a_killed_worker_leaves_no_process",
        "tests/integration/webhooks/test_deliveries_live.py",
        "tests/integration/work/test_leases_live.py",
        "tests/integration/work/test_workspace_constraint_races.py",
    ),
    "processes that are started with each wrong setting": (
        "tests/integration/operation/test_checks.py::test_a_wrong_address_is_named",
        "tests/integration/operation/test_checks.py::test_no_process_starts_in_an_unsafe",
        "tests/integration/sandbox/test_doctor.py::test_weak_confinement_is_found",
        "tests/integration/sandbox/test_doctor.py::test_doctor_confirms_a_sound_host",
    ),
    "limits of time or memory that are waited for": (
        "tests/integration/llm/test_budgets.py::test_attempts_that_fail_are_within",
        "tests/integration/sandbox/test_docker_attacks.py::test_a_gigabyte",
        "tests/integration/sandbox/test_docker_attacks.py::test_gigabyte_of_output_hardly_arrives",
        "tests/integration/sandbox/test_prepare.py::test_the_first_question_has_as_much",
        "tests/integration/sandbox/test_workspace_constraints.py::test_failing_workspace_constraint_harms_no_other",
        "tests/integration/webhooks/test_outgoing.py::test_a_receiver_that_does_not_read",
        "tests/integration/work/test_limits.py::test_a_constraint_past_a_limit",
        "tests/integration/work/test_limits.py::test_tests_have_the_limits",
        "tests/integration/work/test_limits.py::test_together_constraints_have",
    ),
    "images, other runtimes and engines": (
        "tests/integration/sandbox/test_docker_build.py",
        "tests/integration/sandbox/test_doctor.py::test_ignored_limits_are_found",
        "tests/integration/sandbox/test_runtimes.py",
        "tests/integration/typecheck/test_check_types.py::TestContainer::test_a_base_with_another",
    ),
    "tools of other people on whole projects": (
        "tests/integration/export/test_round_trip.py::test_rich_project_comes_back_unchanged",
        "tests/integration/export/test_zip.py::test_empty_project_runs",
        "tests/unit/clients/test_oldest_python.py::test_packages_use_nothing_newer",
        "tests/unit/clients/test_schema.py::test_products_that_use_it_are_type_checked",
        "tests/integration/export/test_zip.py::test_records_alone",
        "tests/unit/project/test_rendered_code.py::test_stubs_say_of_every_name",
    ),
    "recorded data, long histories, many examples": (
        "tests/integration/admin/test_access.py::test_every_migration_writes_the_roles",
        "tests/integration/admin/test_access.py::test_no_screen_asks_for_each_row",
        "tests/integration/admin/test_audit.py::test_audit_has_no_content_and_survives_erasure",
        "tests/integration/admin/test_home.py::test_every_bar_is_the_number",
        "tests/integration/admin/test_lists.py::test_fifty_rows_do_not",
        "tests/integration/admin/test_scale.py",
        "tests/integration/authoring/test_prompts.py::test_ten_times_the_history",
        "tests/integration/authoring/test_prompts.py::test_large_content_leaves_prompt_short",
        "tests/integration/export/test_git.py",
        "tests/integration/export/test_round_trip.py::test_a_large_project",
        "tests/integration/export/test_round_trip.py::test_states_that_a_model",
        "tests/integration/export/test_subject_access.py::test_a_long_log_is_not_held_in_memory",
        "tests/integration/operation/test_migrations.py::test_every_migration_keeps_the_rules",
        "tests/integration/sandbox/test_load.py::test_fifty_thousand_records_load",
        "tests/integration/time/test_backtest.py::TestWhom",
        "tests/integration/time/test_backtest.py::test_backtest_equals_live_history",
        "tests/integration/time/test_year.py",
        "tests/unit/grounding/test_recorded_data.py",
        "tests/unit/library/test_constraint_library.py::TestEach::test_a_step",
        "tests/unit/project/test_recorded_data.py",
        "tests/unit/test_capacity.py::test_the_document_has_the_table",
    ),
}

# Attacks, races, who may see and do what, what is lost or has to be gone, and the checks of
# untrusted code: all of these tests and their rows are in the first tier, but for those that
# EXTENDED names.
WHOLE = (
    "tests/integration/admin/test_access.py",
    "tests/integration/admin/test_audit",
    "tests/integration/admin/test_content_policy.py",
    "tests/integration/admin/test_erasures.py",
    "tests/integration/admin/test_hostile.py",
    "tests/integration/admin/test_keys.py",
    "tests/integration/admin/test_login.py",
    "tests/integration/admin/test_masking.py",
    "tests/integration/admin/test_policy.py",
    "tests/integration/admin/test_readonly.py",
    "tests/integration/admin/test_redactions.py",
    "tests/integration/admin/test_rejected.py",
    "tests/integration/admin/test_sign_in.py",
    "tests/integration/agents/test_forget.py",
    "tests/integration/agents/test_sign_in.py",
    "tests/integration/alerts/test_life.py",
    "tests/integration/api/test_content_policy.py",
    "tests/integration/api/test_idempotency.py",
    "tests/integration/api/test_keys.py",
    "tests/integration/api/test_scopes.py",
    "tests/integration/authoring/test_misbehaviour.py",
    "tests/integration/commits/",
    "tests/integration/erasure/",
    "tests/integration/export/test_subject_access.py",
    "tests/integration/gate/",
    "tests/integration/log/",
    "tests/integration/mem0/test_content_policy.py",
    "tests/integration/mem0/test_refusals.py",
    "tests/integration/races/",
    "tests/integration/redaction/",
    "tests/integration/sandbox/",
    "tests/integration/webhooks/test_outgoing.py",
    "tests/integration/work/test_leases.py",
)

# Of all other files on the server as a whole, and of these few, a share is in the first tier of
# each commit, so that all have run after SHARES commits.
ROTATING = (
    "tests/integration/",
    "tests/unit/demo/",
    "tests/unit/language/",
    "tests/unit/search/",
)
SHARES = 8
# Chosen so that all shares take about as long.
_DEALT_BY = 489

# Tables of similar cases. A quarter of the rows of each is in the first tier, and of the others a
# share that moves on with every commit, so that all have run after ROTATION commits. A row is
# chosen by the hash of its id, not by its place in the table.
SWEEPS = (
    "tests/integration/",
    "tests/unit/library/test_constraint_library.py",
    "tests/unit/project/test_damaged_files.py",
    "tests/unit/test_long_texts.py",
    "tests/unit/test_patterns.py",
)
ROTATION = 48
_MIN_ROWS = 3
_SAMPLED = 4
_VARIABLE = "UAC_TEST_TURN"

# In a file of the second tier, but the sandbox's template has to start with another runtime than
# the engine's own.
FIRST_TIER = (
    "tests/integration/sandbox/test_runtimes.py::test_every_operation_does_the_same[crun]",
)


def is_extended(test: str, turn: int) -> bool:
    """Return whether the test with this id, or the file, is in the second tier of a commit."""
    if test.startswith(FIRST_TIER):
        return False
    return any(map(test.startswith, EXTENDED.values())) or _rests(test.partition("::")[0], turn)


def _rests(file: str, turn: int) -> bool:
    """Return whether it is another commit's turn to run this file."""
    if not _rotates(file) or not file.endswith(".py"):
        return False
    return zlib.crc32(file.encode(), _DEALT_BY) % SHARES != turn % SHARES


def _rotates(test: str) -> bool:
    return test.startswith(ROTATING) and not test.startswith(WHOLE)


def turn() -> int:
    """Return which share of the rotating rows runs: the number of commits, modulo ROTATION.

    Set UAC_TEST_TURN to repeat the selection of another commit. The processes of pytest inherit it.
    """
    if _VARIABLE not in os.environ:
        command = ("git", "rev-list", "--count", "HEAD")
        counted = subprocess.run(command, cwd=_ROOT, capture_output=True, check=False)
        os.environ[_VARIABLE] = str(int(counted.stdout or 0) % ROTATION)
    return int(os.environ[_VARIABLE])


def rows_left_out(test: str, rows: Sequence[str], turn: int) -> set[str]:
    """Return which of the rows of a test, given by their ids, are left to the second tier."""
    if len(rows) < _MIN_ROWS or test.startswith(WHOLE) or not test.startswith(SWEEPS):
        return set()
    turns = ROTATION
    if _rotates(test):  # the file has a turn of SHARES alone
        turn, turns = turn // SHARES, ROTATION // SHARES
    hashes = {row: zlib.crc32(row.encode()) for row in rows}
    others = sorted(rows, key=lambda row: (hashes[row], row))[-(-len(rows) // _SAMPLED) :]
    return {row for row in others if hashes[row] % turns != turn}


def holds_extended_only(path: str, turn: int) -> bool:
    """Return whether all tests of this file, or folder with its final "/", are in the second tier.

    Such a path need not even be collected if the second tier is left out.
    """
    return is_extended(path, turn) and not any(test.startswith(path) for test in FIRST_TIER)


def named() -> list[str]:
    """Return all beginnings of ids that are listed here."""
    extended = [one for group in EXTENDED.values() for one in group]
    return [*FIRST_TIER, *SWEEPS, *WHOLE, *ROTATING, *extended]
