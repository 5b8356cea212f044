"""Cached SQL statements give the same results as the queryset."""

import pytest
from django.db.models import QuerySet
from django.forms.models import model_to_dict
from pytest_django import DjangoAssertNumQueries

from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import WITH_HEAD, create_user, find_user
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind
from tests.factories import make_checkpoint, make_run

pytestmark = pytest.mark.django_db


def by_id() -> QuerySet[MemoryUser]:
    return MemoryUser.objects.filter(user_id=Parameter("user_id"))


def test_a_row_comes_as_from_the_queryset(
    user: MemoryUser, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    statement = Statement(lambda: Run.objects.filter(pk=Parameter("pk")))
    # Exact JSON, whose order and numbers the database keeps, and `jsonb`.
    run = make_run(make_checkpoint(user), input={"z": 1.50, "a": [1, None]}, timings={"total": 2})

    with django_assert_num_queries(1):
        found = statement.first(pk=run.pk)
        assert found is not None
        told = model_to_dict(found)

    assert told == model_to_dict(Run.objects.get(pk=run.pk))
    assert list(found.input) == ["z", "a"]


def test_only_what_is_named_is_read_and_what_it_refers_to_comes_along(
    user: MemoryUser, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    version = make_checkpoint(user, tree={"a.py": "1"})
    statement = Statement(
        lambda: Checkpoint.objects.filter(pk=Parameter("pk")),
        *("tree", "user__user_id", "user__workspace__*"),
    )

    with django_assert_num_queries(1):
        found = statement.first(pk=version.pk)
        assert found is not None
        assert (found.pk, found.tree) == (version.pk, {"a.py": "1"})
        assert (found.user.pk, found.user.user_id) == (user.pk, user.user_id)
        assert model_to_dict(found.user.workspace) == model_to_dict(user.workspace)
    assert found.get_deferred_fields() >= {"outline", "edits", "verdict"}
    with django_assert_num_queries(1):
        assert found.verdict == version.verdict


def test_a_reference_to_nothing_is_none(
    workspace: Workspace, user: MemoryUser, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        found = find_user(workspace, user.user_id, WITH_HEAD)
        assert found is not None
        assert (found.head_id, found.head) == (None, None)


def test_every_value_is_asked_for_with_the_sql_of_the_first(workspace: Workspace) -> None:
    written: list[str] = []

    def users() -> QuerySet[MemoryUser]:
        written.append("once")
        return by_id().filter(workspace=Parameter("workspace"))

    statement = Statement(users)
    for name in ("ada", "grace"):
        create_user(workspace, name, metadata=None)

    found = [statement.first(workspace=workspace.pk, user_id=name) for name in ("ada", "grace")]

    assert [one and one.user_id for one in found] == ["ada", "grace"]
    assert statement.first(workspace=workspace.pk, user_id="x' OR true --") is None
    assert statement.first(workspace=0, user_id="ada") is None
    assert written == ["once"]


def test_constants_of_the_queryset_are_kept(user: MemoryUser) -> None:
    version = make_checkpoint(user)
    old, new = (make_run(version, kind=RunKind.QUERY, answer_key="k") for _ in range(2))
    make_run(version, kind=RunKind.CONSTRAINTS, answer_key="k")
    statement = Statement(
        lambda: Run.objects.filter(answer_key=Parameter("key"), kind=RunKind.QUERY).order_by(
            "-queued_at"
        )[:1]
    )

    assert statement.first(key="k") == new != old


def test_a_value_that_is_not_given_is_an_error(user: MemoryUser) -> None:
    with pytest.raises(KeyError, match="user_id"):
        Statement(by_id).first(name=user.user_id)


def test_a_column_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="MemoryUser has no columns nickname"):
        Statement(by_id, "nickname").sql(user_id="ada")
