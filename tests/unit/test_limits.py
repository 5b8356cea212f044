"""The limits of the sandboxes: effective values, and values that cannot be chosen."""

from dataclasses import asdict

import pytest
from django.core.exceptions import ValidationError
from django.test import override_settings

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.sandbox_limits import (
    LIMITS,
    effective,
    process_memory_most,
    validate_overrides,
)
from uac_site import checks

pytestmark = pytest.mark.usefixtures("limits_as_delivered")

# For each, a value that differs from the server's and does not conflict with others.
OTHERS = {
    "wall_seconds": 4.5,
    "total_seconds": 20.0,
    "cpu_seconds": 3,
    "process_memory_mib": 100,
    "output_kib": 10,
    "result_kib": 20,
    "result_depth": 5,
    "memory_mib": 2048,
}


def test_every_limit_can_be_chosen() -> None:
    assert OTHERS.keys() == LIMITS.keys()
    assert asdict(effective(OTHERS)) == OTHERS
    assert validate_overrides(OTHERS) == {}


@pytest.mark.parametrize("name", OTHERS)
def test_unset_limit_is_the_servers(name: str) -> None:
    holds = asdict(effective({**dict.fromkeys(OTHERS), name: OTHERS[name]}))

    assert holds == {**asdict(effective({})), name: OTHERS[name]}


@pytest.mark.parametrize(
    ("chosen", "name", "holds"),
    [
        ({"wall_seconds": 2}, "cpu_seconds", 2),
        ({"wall_seconds": 0.5}, "cpu_seconds", 1),
        ({"total_seconds": 3}, "wall_seconds", 3),
        ({"total_seconds": 3}, "cpu_seconds", 3),
        ({"memory_mib": 256}, "process_memory_mib", 112),
    ],
)
def test_default_yields_to_a_chosen_limit(
    chosen: dict[str, float], name: str, holds: float
) -> None:
    assert asdict(effective(chosen))[name] == holds
    assert validate_overrides(chosen) == {}


@pytest.mark.parametrize(
    ("chosen", "name", "told"),
    [
        ({"wall_seconds": 0.01}, "wall_seconds", "between 0.1 and 90 (seconds), not 0.01."),
        ({"wall_seconds": -1}, "wall_seconds", "between 0.1 and 90 (seconds), not -1."),
        ({"wall_seconds": 91}, "wall_seconds", "A sandbox lives for only a few minutes"),
        ({"total_seconds": 91}, "total_seconds", "between 0.1 and 90 (seconds), not 91."),
        ({"wall_seconds": 40}, "wall_seconds", "at most 30 s, or set total_seconds to at least 40"),
        ({"cpu_seconds": 0}, "cpu_seconds", "between 1 and 90 (seconds), not 0. The kernel counts"),
        ({"cpu_seconds": 9}, "cpu_seconds", "choose at most 5 s, or set wall_seconds to at"
            " least 9"),
        ({"process_memory_mib": 8}, "process_memory_mib", "between 48 and 1048576 (MiB), not 8."),
        ({"process_memory_mib": 800}, "process_memory_mib", "choose at most 496 MiB,"
         " or set memory_mib to at least 1632."),
        ({"memory_mib": 64}, "memory_mib", "between 128 and 4096 (MiB), not 64."),
        ({"memory_mib": 8192}, "memory_mib", "between 128 and 4096 (MiB), not 8192:"
         " UAC_SANDBOX_MEMORY_MIB_MOST is 4096."),
        ({"output_kib": 0}, "output_kib", "between 1 and 16384 (KiB), not 0."),
        ({"result_kib": 10**6}, "result_kib", "between 1 and 16384 (KiB), not 1000000."),
        ({"result_depth": 49}, "result_depth", "between 1 and 48 (levels), not 49."),
    ],
)  # fmt: skip
def test_invalid_limit_is_refused_by_field(chosen: dict[str, float], name: str, told: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Workspace(name="x", **chosen).clean()

    assert raised.value.message_dict.keys() == {name}
    assert told in raised.value.message_dict[name][0]


def test_advice_is_good() -> None:
    assert validate_overrides({"process_memory_mib": 800, "memory_mib": 1632}) == {}
    assert validate_overrides({"wall_seconds": 40, "total_seconds": 40, "cpu_seconds": 40}) == {}


@override_settings(UAC_SANDBOX_MEMORY_MIB_MOST=512)
def test_a_ceiling_that_was_lowered_holds_for_what_was_chosen_before() -> None:
    holds = effective({"memory_mib": 2048, "process_memory_mib": 1000})

    assert holds.memory_mib == 512
    assert holds.process_memory_mib == process_memory_most(512) == 240


@pytest.mark.parametrize(
    "changed", [{}, {"UAC_SANDBOX_MEMORY_MIB": 256}, {"UAC_SANDBOX_TOTAL_SECONDS": 2}]
)
def test_the_servers_settings_need_not_all_be_set(changed: dict[str, float]) -> None:
    with override_settings(**changed):
        assert checks.validate_server_settings() == {}


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("UAC_SANDBOX_WALL_SECONDS", 91, "UAC_SANDBOX_WALL_SECONDS"),
        ("UAC_SANDBOX_TOTAL_SECONDS", 3600, "UAC_SANDBOX_TOTAL_SECONDS"),
        ("UAC_SANDBOX_MEMORY_MIB", 64, "UAC_SANDBOX_MEMORY_MIB"),
        ("UAC_SANDBOX_MEMORY_MIB_MOST", 64, "UAC_SANDBOX_MEMORY_MIB_MOST"),
        ("UAC_SANDBOX_OUTPUT_KIB", -1, "UAC_SANDBOX_OUTPUT_KIB"),
    ],
)
def test_a_setting_that_is_wrong_is_named(setting: str, value: float, named: str) -> None:
    with override_settings(**{"UAC_SANDBOX_MEMORY_MIB": 256, setting: value}):
        assert named in checks.validate_server_settings()
