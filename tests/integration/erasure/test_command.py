"""`manage.py erase`: the list of erased users, and repeating erasures after an older backup."""

import io
import json
import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from memory.kernel.models.users import MemoryUser
from memory.kernel.users import create_user
from memory.privacy import user_erasure
from memory.privacy.models import UserErasure
from tests.integration.erasure.conftest import finish

pytestmark = pytest.mark.django_db


def erase(*arguments: str) -> str:
    told = io.StringIO()
    call_command("erase", *arguments, stdout=told)
    return told.getvalue()


def test_users_of_a_restored_backup_are_erased_again(user: MemoryUser, tmp_path: Path) -> None:
    other = create_user(user.workspace, "bob", metadata=None)
    before = MemoryUser.objects.filter(pk=user.pk).values().get()
    user_erasure.ask(user, by="test", reason="asked for")
    finish(user)
    listed = erase()
    assert [json.loads(line)["erased_user"] for line in listed.splitlines()] == [
        str(user.public_id)
    ]
    assert not re.search(r"\bada\b", listed)
    # Given a database as it was before.
    UserErasure.objects.all().delete()
    MemoryUser.everybody.filter(pk=user.pk).update(**before)
    log = tmp_path / "server.log"
    log.write_text(f'not JSON\n{{"event": "other"}}\n[1]\n"x"\n{{"erased_user": 1}}\n{listed}')

    assert erase("--again", str(log)) == "users listed: 1; being erased again: 1\n"

    row = finish(user)
    assert (row.by, row.reason, row.due_at) == ("command", user_erasure.RESTORED, None)
    assert list(MemoryUser.objects.all()) == [other]
    assert erase("--again", str(log)) == "users listed: 1; being erased again: 0\n"


@pytest.mark.parametrize("content", [None, "", "no such line\n"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "list"
    if content is not None:
        file.write_text(content)

    with pytest.raises(CommandError, match="--again"):
        erase("--again", str(file))
