"""The table of settings: what is read, documented, overridden and refused is what it says."""

import re
import subprocess
import sys

import pytest
from django.conf import settings
from django.test import override_settings

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment
from memory.kernel.settings.overrides import validate_overrides, validate_server_settings
from memory.kernel.work import hints
from memory.log import batching
from memory.recall.search.embeddings import provider_api
from uac_site import configuration

NUMBERS = [one for one in environment.SETTINGS.values() if one.minimum is not None]


def test_the_page_is_what_the_table_says() -> None:
    assert configuration.PAGE.read_text() == configuration.page(), (
        "write it anew: python -m uac_site.configuration"
    )


def test_the_settings_read_every_variable_of_the_table_and_no_other() -> None:
    source = (settings.BASE_DIR / "uac_site" / "settings.py").read_text()
    named = set(re.findall(r'(?:read|env\.\w+)\(\s*"(\w+)"', source))

    assert named <= environment.SETTINGS.keys()
    for name in environment.SETTINGS.keys() - named:
        assert hasattr(settings, name) or name.startswith("OTEL_"), name


def test_the_settings_load_where_sockets_lack_an_option() -> None:
    code = "import socket; del socket.TCP_KEEPIDLE; import uac_site.settings"

    subprocess.run([sys.executable, "-c", code], cwd=settings.BASE_DIR, check=True)


def test_each_variable_is_in_one_group() -> None:
    assert len(environment.SETTINGS) == sum(len(group.settings) for group in environment.GROUPS)


def test_the_defaults_are_in_range() -> None:
    with override_settings(**{one.name: one.default for one in NUMBERS}):
        assert validate_server_settings() == {}


def test_a_workspace_has_the_fields_that_override() -> None:
    fields = {field.name for field in Workspace._meta.concrete_fields}
    named = {setting.field for setting in environment.SETTINGS.values() if setting.field}

    assert named <= fields
    assert fields - named == {
        *("id", "public_id", "name", "time_zone", "users_by_entry", "name_field", "created_at"),
        *("single_use", "schema", "llm_api_key", "llm_resumptions", "llm_stops"),
    }


def test_the_bounds_are_those_that_the_code_keeps() -> None:
    assert environment.SETTINGS["UAC_STRUCTURE_ENTRIES"].maximum == batching.MAX_ENTRIES
    assert environment.SETTINGS["UAC_EMBEDDINGS_DIMENSIONS"].maximum == provider_api.MAX_DIMENSIONS
    assert environment.SETTINGS["UAC_ALARM_WAITING_SECONDS"].minimum == hints.HINT_SECONDS


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_a_number_out_of_range_is_named_with_the_fix(setting: environment.Setting) -> None:
    with override_settings(**{setting.name: -1}):
        told = validate_server_settings()[setting.name]

    assert told.startswith(f"{setting.name} must be ")
    assert "not -1" in told


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"UAC_WEBHOOK_CONCURRENCY": 0},
            "UAC_WEBHOOK_CONCURRENCY must be at least 1 (calls), not 0.",
        ),
        (
            {"UAC_DAILY_RUN_HOUR": 24},
            "UAC_DAILY_RUN_HOUR must be between 0 and 23 (hour), not 24.",
        ),
        (
            {"UAC_WEB_LOCK_SECONDS": float("nan")},
            "UAC_WEB_LOCK_SECONDS must be between 0 and 86400 (seconds; 0 means no limit), not"
            " nan.",
        ),
        (
            {"UAC_EMBEDDINGS_TOKENS_PER_DAY": 10},
            "UAC_EMBEDDINGS_TOKENS_PER_DAY must be at least 100000 (tokens; 0 means no calls), not"
            " 10. With fewer, indexing makes no progress.",
        ),
        (
            {"UAC_STRUCTURE_IDLE_SECONDS": 100, "UAC_STRUCTURE_AGE_SECONDS": 50},
            "UAC_STRUCTURE_IDLE_SECONDS must be between 1 and 50 (seconds), not 100:"
            " UAC_STRUCTURE_AGE_SECONDS is 50.",
        ),
        (
            {"UAC_STRUCTURE_IDLE_SECONDS": 100, "UAC_STRUCTURE_AGE_SECONDS": 0},
            "UAC_STRUCTURE_AGE_SECONDS must be between 1 and 2147483647 (seconds), not 0.",
        ),
    ],
)
def test_invalid_setting_is_reported_once(values: dict[str, float], told: str) -> None:
    with override_settings(**values):
        assert list(validate_server_settings().values()) == [told]


def test_zero_is_allowed_where_it_has_a_meaning() -> None:
    zeros = {one.name: 0 for one in NUMBERS if one.zero}

    with override_settings(**zeros):
        assert not zeros.keys() & validate_server_settings().keys()


@override_settings(UAC_STRUCTURE_IDLE_SECONDS=60, UAC_STRUCTURE_AGE_SECONDS=900)
@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"structure_idle_seconds": 900}, {}),
        ({"structure_entries": None, "structure_age_seconds": 60}, {}),
        (
            {"structure_idle_seconds": 901},
            {
                "structure_idle_seconds": "It must be between 1 and 900 (seconds), not 901:"
                " structure_age_seconds is 900."
            },
        ),
        (
            {"structure_age_seconds": 59},
            {
                "structure_age_seconds": "It must be at least 60, not 59:"
                " structure_idle_seconds is 60."
            },
        ),
        (
            {"structure_idle_seconds": 100, "structure_age_seconds": 50},
            {
                "structure_idle_seconds": "It must be between 1 and 50 (seconds), not 100:"
                " structure_age_seconds is 50."
            },
        ),
    ],
)
def test_contradiction_of_two_overrides_names_one(
    overrides: dict[str, float | None], told: dict[str, str]
) -> None:
    assert validate_overrides(environment.STRUCTURING, overrides) == told
