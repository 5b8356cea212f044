"""A lease that expires while a language model answers."""

import pytest
from django.utils import timezone

from memory import log
from memory.models import Checkpoint, Lane, MemoryUser, Run
from memory.models.log import EntryKind
from memory.models.users import LaneName
from memory.verification import problems
from tests.integration.authoring.conftest import (
    Meanwhile,
    Say,
    Work,
    edits,
    finishes,
    meanwhile,
    quick,
    say,
    work,
)
from workers.authoring import lane as model_lane

__all__ = ["meanwhile", "quick", "say", "work"]

pytestmark = pytest.mark.django_db


def test_what_a_successor_has_structured_meanwhile_is_not_proposed_again(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a fact, and a model that answers so late that another worker does all of it
    (told,) = say("The user likes tea.", kind=EntryKind.FACT)
    note = {"op": "note", "text": "Likes tea.", "sources": [told]}

    def successor() -> None:
        lane = Lane.objects.filter(user=user, name=LaneName.STRUCTURE)
        lane.update(lease_expires_at=timezone.now())
        model_lane.work_on(user.pk)

    meanwhile(successor)
    # When the late answer comes
    server = work(edits(note), edits(note), finishes())
    # Then it is neither gone on with nor proposed
    assert len(server.requests) == 3
    assert Run.objects.filter(user=user).count() == 1
    assert Checkpoint.objects.filter(user=user).count() == 1
    assert log.coverage(user).covered == 1
    assert list(problems(user)) == []
