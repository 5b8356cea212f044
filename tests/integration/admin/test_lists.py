"""Lists in a database without other rows: empty ones say so, and long ones stay cheap."""

import re

import pytest
from django.db.models import Model
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from memory.alerts.models.alerts import Alert, EventCounter
from memory.kernel.models.pauses import Pause
from memory.kernel.models.workspaces import Workspace, WorkspaceUse
from memory.kernel.staff.models import StaffAudit
from memory.log.models.entries import LogEntry
from tests.integration.admin.conftest import MODELS, Populate, list_url, name_of, text_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "model",
    [one for one in MODELS if one is not StaffAudit],  # who looks has logged in
    ids=name_of,
)
def test_an_empty_list_says_so(admin_client: Client, model: type[Model]) -> None:
    assert 'class="when-empty"' in text_of(admin_client.get(list_url(model)))
    assert "No rows match." not in text_of(admin_client.get(list_url(model)))


@pytest.mark.parametrize(
    ("model", "query", "unknown"),
    [
        (Alert, "severity__exact=nonsense", ["severity"]),
        (Alert, "owner=nonsense&severity__exact=critical", ["owner"]),
        (LogEntry, "outcome=nonsense", ["outcome"]),
        (Alert, "severity__exact=critical&state__in=open", []),
        (Alert, "opened_at__gte=2026-03-01", []),
        (Pause, "resumed=no", []),
    ],
)
def test_a_filter_value_that_there_is_not_is_named(
    admin_client: Client, model: type[Model], query: str, unknown: list[str]
) -> None:
    response = admin_client.get(f"{list_url(model)}?{query}")

    assert response.context["cl"].unknown_filters == unknown
    for title in unknown:
        assert f"the filter <b>{title}</b> does not offer" in text_of(response)


def test_fifty_rows_do_not_ask_for_each_row(
    admin_client: Client,
    populate: Populate,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(50):
        populate("Aspirin", f"user-{number}")

    for model in MODELS:
        with django_assert_max_num_queries(12, info=f"the list of {model.__name__}"):
            page = text_of(admin_client.get(list_url(model)))
        rows = 1 if model in (Workspace, WorkspaceUse, EventCounter) else 50
        assert len(re.findall(r'<th class="field-', page)) == rows, model
