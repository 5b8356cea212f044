"""Each view of a person's rows by the staff is audited."""

import pytest
from django.db.models import Model
from django.test import Client

from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import audit
from memory.kernel.staff.models import AuditKind, StaffAudit
from tests.integration.admin.conftest import MODELS, Rows, list_url, name_of, page_url

pytestmark = pytest.mark.django_db

OF_PEOPLE = [model for model in MODELS if audit.tells_of_people(model)]


@pytest.mark.parametrize("model", OF_PEOPLE, ids=name_of)
def test_each_look_at_rows_of_a_person_is_noted_once(
    admin_client: Client, rows: Rows, model: type[Model]
) -> None:
    row, user = rows[model], rows[MemoryUser]

    number = admin_client.get(list_url(model)).context["cl"].result_count
    admin_client.get(page_url(row))

    noted = StaffAudit.objects.filter(staff_name="admin", kind=AuditKind.VIEW)
    listed, page = noted.order_by("id")
    assert (listed.kind, listed.what, listed.number) == (AuditKind.VIEW, "list", number)
    assert (page.kind, page.what, page.number, page.row) == (
        AuditKind.VIEW,
        "page",
        1,
        str(row.pk),
    )
    for one in (listed, page):
        assert one.model == model._meta.model_name
        assert one.workspace == user.workspace
    without_user = row._meta.model_name == "backtest"  # of a constraint of the workspace
    assert page.person == (None if without_user else user.public_id)
