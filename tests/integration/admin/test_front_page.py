"""The front page of the admin: our lists grouped by purpose; times that can be compared."""

import datetime

import pytest
from django.contrib.auth.models import Permission, User
from django.template import Context, Template
from django.test import Client

pytestmark = pytest.mark.django_db


def test_viewer_of_one_list_sees_one_section(client: Client) -> None:
    user = User.objects.create(username="eve", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    client.force_login(user)

    rooms = client.get("/admin/").context["app_list"]

    assert [(room["name"], len(room["models"])) for room in rooms] == [("Users", 1)]


def test_times_are_sortable_and_name_their_zone() -> None:
    moment = datetime.datetime(2026, 3, 1, 17, 5, 9, tzinfo=datetime.UTC)

    assert Template("{{ moment }}").render(Context({"moment": moment})) == "2026-03-01 17:05:09 UTC"
