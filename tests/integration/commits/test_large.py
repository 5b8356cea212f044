"""One more record on fifty thousand: the work depends on the change, not on the past's size."""

from typing import Any

import pytest
from django.utils import timezone

from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases
from memory.operations.verification import problems
from memory.project import Add, DefineClass, FieldSpec, Project, apply
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, Origin
from tests.integration.commits.conftest import Append, trip
from tests.steps import head_of, not_none
from workers import tasks
from workers.gate import judging
from workers.gate.cases import Profile, ProjectCase

pytestmark = pytest.mark.django_db

MANY = 50_000


@pytest.fixture
def crowded(user: MemoryUser) -> MemoryUser:
    """A user with 50,000 trips, added through the gate in one checkpoint."""
    project = Project.empty()
    fields = (
        FieldSpec("to", "str"),
        FieldSpec("starts_on", "datetime.date"),
        FieldSpec("cost", "float"),
    )
    apply(project, DefineClass("travel", "Trip", fields, collection="trips"))
    for number in range(MANY):
        values = {"to": f"City {number % 977}", "starts_on": "2024-05-02", "cost": number / 4}
        apply(project, Add("travel", "Trip", values, sources=(1,), key=f"trip-{number}"))
    change = project.change()
    case = ProjectCase(profile=Profile.TYPED, user=user, parent=None, change=change)
    verdict = judging.judge(case)
    assert verdict.accepted, verdict.reason

    Lane.objects.filter(user=user, name=LaneName.RECORDS).update(due_at=timezone.now())
    lane = not_none(leases.claim(Lane.objects.filter(user=user, name=LaneName.RECORDS)))
    candidate = checkpoints.Candidate(
        parent=None,
        change=change,
        edits=[],
        origin=Origin.IMPORTED,
        seen_seq=0,
        verdict=verdict.to_json(),
        bytecode=verdict.bytecode,
        image_digest=verdict.image_digest,
    )
    checkpoints.commit(lane, user, candidate, [])
    leases.fail(lane, "")
    Lane.objects.filter(pk=lane.pk).update(due_at=None, run_after=timezone.now())
    user.refresh_from_db()
    return user


def test_the_work_follows_the_change(
    crowded: MemoryUser, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = head_of(crowded)
    assert len(before.tree) > 50
    blobs = Blob.objects.filter(user=crowded).count()
    compiled = Bytecode.objects.filter(user=crowded).count()
    read: list[str] = []
    real = checkpoints.read_file

    def read_file(version: Checkpoint, path: str) -> str:
        read.append(path)
        return real(version, path)

    monkeypatch.setattr(checkpoints, "read_file", read_file)

    append(trip(key="one-more", starts_on="2026-05-02", cost=1.5))
    tasks.work("records", crowded.pk)

    after = head_of(crowded)
    assert after.version == 2
    changed = {path for path in after.tree if after.tree[path] != before.tree.get(path)}
    assert changed == {"manifest.py", max(path for path in after.tree if "/trips_" in path)}
    assert before.tree.keys() == after.tree.keys()
    counts: dict[str, Any] = after.verdict["counts"]
    # One of the two changed files is generated from the outline and never parsed.
    assert counts["files_parsed"] == 1
    assert counts["files_changed"] == counts["files_rendered"] == len(changed) == 2
    assert counts["files_compiled"] == counts["files_checked"] == len(changed)
    assert set(read) == changed
    assert Blob.objects.filter(user=crowded).count() == blobs + 2
    assert Bytecode.objects.filter(user=crowded).count() == compiled + 2

    append({**trip(key="trip-25000"), "data": {"cost": 1.0}})
    tasks.work("records", crowded.pk)

    updated = head_of(crowded)
    (path,) = [path for path in updated.tree if updated.tree[path] != after.tree[path]]
    counts = updated.verdict["counts"]
    assert counts["files_parsed"] == counts["files_changed"] == counts["files_rendered"] == 1
    assert counts["files_compiled"] == counts["files_checked"] == 1
    assert 'key="trip-25000"' in checkpoints.read_file(updated, path)
    assert list(problems(crowded)) == []
