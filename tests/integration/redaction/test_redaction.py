"""Redaction of single entries: what is removed, what stays, and that nothing of it is left."""

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.delivery import outbox
from memory.alerts.models.alerts import Alert, AlertState
from memory.alerts.models.webhooks import Delivery, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.redactions import Redaction
from memory.operations import verification
from memory.privacy import redaction
from memory.recall import retrieval
from memory.recall.search.finding import find
from memory.versions import redactions, rollback, runs
from memory.versions.checkpoints import Redacted
from memory.versions.models.checkpoints import Checkpoint, RecordLocation
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from tests.constraints import make_rule
from tests.integration.redaction.conftest import MARKER, USER, Say, found
from workers import tasks
from workers.gate import checks

pytestmark = pytest.mark.django_db

Work = Callable[[], None]

RULE = make_rule(
    "dose",
    "health.Medication",
    "medication.dose > 100",
    "{medication.name} among {[one.name for one in medications]}",
    fires='name="x", dose=101',
    silent='name="x", dose=100',
    doc="No dose is above a hundred.",
)
CONSTRAINT, TESTS = RULE["source"], RULE["tests"]


def redact(user: MemoryUser, *seqs: int) -> LogEntry:
    return redaction.redact(user, seqs, by="staff:eve", reason="she asked for it")


def keys(api: APIClient) -> list[str]:
    records = api.get(f"{USER}state/health/medications/").data["records"]
    return [record["key"] for record in records]


def put(
    api: APIClient, work: Work, source: str = CONSTRAINT, tests: str = TESTS, **body: Any
) -> None:
    answer = api.put(f"{USER}constraints/dose/?wait=0", {"source": source, "tests": tests, **body})
    assert answer.status_code == 202, answer.data
    work()
    run = Run.objects.get(pk=answer.data["id"])
    assert run.outcome == "ok", run.error


# -- Nothing is left ------------------------------------------------------------------------------


def test_redaction_empties_every_table(
    api: APIClient, user: MemoryUser, workspace: Workspace, say: Say, work: Work
) -> None:
    # Given a record among others, read, judged, alerted about and sent on since
    WebhookEndpoint.objects.create(
        workspace=workspace, url="https://example.org/", secret=b"sealed"
    )
    say("Medication", "aspirin", name="Aspirin", dose=200)
    put(api, work)
    statement = {"name": MARKER, "dose": 300}
    entry = {
        "kind": "record",
        "domain": "health",
        "type": "Medication",
        "key": f"{MARKER}-1",
        "data": statement,
        "metadata": {"note": MARKER},
        "session_id": MARKER,
    }
    secret = api.post(f"{USER}entries/", entry, HTTP_IDEMPOTENCY_KEY="once").data["entries"][0][
        "seq"
    ]
    work()
    say("Medication", "ibuprofen", name="Ibuprofen", dose=3)
    edits = [{"op": "note", "text": f"Ask about {MARKER}.", "sources": [secret]}]
    api.post(f"{USER}checkpoints/?wait=0", {"edits": edits})
    api.post(f"{USER}query/?wait=0", {"code": "[m.name for m in medications]"})
    api.post(f"{USER}query/?wait=0", {"code": "print([m.name for m in medications])"})
    work()
    for alert in Alert.objects.filter(user=user):
        api.post(f"/v1/alerts/{alert.pk}/acknowledge/", {"note": f"{MARKER}?"})
    tasks.work("forecasts", user.pk)
    holders = {place.partition(":")[0] for place in found()}
    assert holders >= {
        *("LogEntry.data", "Blob.content"),
        *("LogEntry.metadata", "LogEntry.session_id", "Checkpoint.edits", "Run.output"),
        *("Run.input", "Run.stdout", "Alert.message", "Alert.evidence", "AlertEvent.detail"),
        *("Delivery.payload", "RecordLocation.key", "Forecast.results", "Bytecode.code"),
        "Checkpoint.verdict",
    }

    sent = Delivery.objects.filter(type="alert.acknowledged")
    assert sent.update(state="given_up", settled_at=timezone.now())

    # When it is redacted
    told = redact(user, secret)
    work()
    tasks.work("forecasts", user.pk)

    # Then it is nowhere, and everything else is where it was
    assert found() == []
    assert keys(api) == ["aspirin", "ibuprofen"]
    assert list(verification.problems(user)) == []
    assert told.data == {
        "entries": [secret],
        "asked": [secret],
        "by": "staff:eve",
        "reason": "she asked for it",
    }
    row = Redaction.objects.get(user=user)
    assert (row.due_at, row.records, row.constraints, row.problem) == (None, 2, 0, "")
    assert row.version is not None
    version = Checkpoint.objects.get(user=user, version=row.version)
    assert (version.origin, version.pk) == ("redaction", MemoryUser.objects.get(pk=user.pk).head_id)
    coverage = entry_log.coverage(user)
    assert (coverage.pending, coverage.rejected) == (0, 0)
    # The alert about another record is reworded; that about this one is resolved.
    states = dict(Alert.objects.filter(user=user).values_list("message", "state"))
    assert states == {
        "Aspirin among ['Aspirin', 'Ibuprofen']": AlertState.ACKNOWLEDGED,
        "(redacted)": AlertState.RESOLVED,
    }
    # No event is lost: a waiting message is sent, and describes the alert as it is now.
    waiting = Delivery.objects.filter(state="pending")
    assert waiting.filter(type="alert.opened").count() == 2
    for delivery in waiting:
        message = json.loads(delivery.payload)["data"]
        assert message["event"]["seq"] == delivery.seq
        assert message["alert"]["message"] == "(redacted)"
    # Settled messages are empty, and are not sent again on request.
    delivery = sent[0]
    assert (sent.count(), delivery.payload) == (2, "")
    with pytest.raises(outbox.DeliveryPending, match="redacted"):
        outbox.replay(delivery)
    assert outbox.replay_given_up(delivery.endpoint, delivery.created_at) == 0
    # A repeated request does not restore it.
    again = api.post(f"{USER}entries/", entry, HTTP_IDEMPOTENCY_KEY="once")
    assert again.status_code == 422


def test_model_calls_keep_their_cost_alone(
    user: MemoryUser, workspace: Workspace, work: Work
) -> None:
    (said,) = entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content=MARKER)], source="test")
    call = {
        "workspace": workspace,
        "user": user,
        "purpose": LlmPurpose.MEMORIZE,
        "work": said.pk,
        "turn": 1,
        "attempt": 1,
        "model": "a model",
        "prompt_hash": "0" * 64,
        "reserved_tokens": 9,
        "input_tokens": 5,
        "expires_at": timezone.now(),
        "finished_at": timezone.now(),
        "outcome": LlmOutcome.OK,
        "error": MARKER,
        "prompt": b"sealed",
        "answer": b"sealed",
    }
    before = LlmCall.objects.create(**{**call, "started_at": said.recorded_at.replace(year=2020)})
    after = LlmCall.objects.create(**call)

    redact(user, said.seq)
    work()

    after.refresh_from_db()
    assert (after.prompt, after.answer, after.prompt_hash, after.error) == (None, None, "", "")
    assert after.input_tokens == 5
    before.refresh_from_db()
    assert before.prompt is not None


def test_derived_facts_go_with_their_message(api: APIClient, user: MemoryUser, work: Work) -> None:
    said, other = entry_log.append(
        user,
        [
            Draft(kind=EntryKind.MESSAGE, content=f"I take {MARKER}."),
            Draft(kind=EntryKind.MESSAGE, content="I like tea."),
        ],
        source="test",
    )
    fact, mixed, tea = entry_log.append(
        user,
        [
            Draft(kind=EntryKind.FACT, content=f"Takes {MARKER}.", derived_from=[said.seq]),
            Draft(
                kind=EntryKind.FACT,
                content=f"Takes {MARKER} with tea.",
                derived_from=[said.seq, other.seq],
            ),
            Draft(kind=EntryKind.FACT, content="Likes tea.", derived_from=[other.seq]),
        ],
        source="memorize",
    )
    (further,) = entry_log.append(
        user,
        [Draft(kind=EntryKind.FACT, content=f"{MARKER} daily", derived_from=[fact.seq])],
        source="memorize",
    )
    edits = [{"op": "note", "text": f"{MARKER} daily", "sources": [further.seq]}]
    api.post(f"{USER}checkpoints/?wait=0", {"edits": edits})
    work()

    told = redact(user, said.seq)
    work()

    gone = [said.seq, fact.seq, mixed.seq, further.seq]
    assert told.data is not None
    assert told.data["entries"] == gone
    assert found() == []
    assert redactions.redacted_among(user, range(1, 20)) == gone
    hits = {hit.entry.seq for hit in find(user, "tea", top_k=9).hits}
    assert hits == {other.seq, tea.seq}
    assert list(verification.problems(user)) == []


# -- What other entries did -----------------------------------------------------------------------


def test_a_record_that_it_changed_is_as_it_was_and_later_changes_are_made_again(
    api: APIClient, user: MemoryUser, say: Say, work: Work, fields_of: Callable[[str], Any]
) -> None:
    say("Medication", "a", name="Aspirin", dose=1)
    secret = say("Medication", "a", name=MARKER, note=MARKER)
    later = say("Medication", "a", dose=3)

    redact(user, secret)
    assert redaction.under_way(user) == [secret]
    tasks.work("redactions", user.pk)

    # The later entry is pending, and then its change is there again.
    assert not EntryOutcome.objects.filter(user=user, seq=later).exists()
    assert fields_of("health.medications")["a"]["dose"] == 1
    work()
    assert found() == []
    assert fields_of("health.medications") == {"a": {"name": "Aspirin", "dose": 3, "note": None}}
    assert EntryOutcome.objects.get(user=user, seq=later).outcome == Outcome.COVERED
    row = Redaction.objects.get(user=user)
    assert (row.records, row.reopened) == (1, 1)
    assert list(verification.problems(user)) == []


def test_a_record_that_it_made_is_made_of_what_others_say(
    api: APIClient, user: MemoryUser, say: Say, work: Work, fields_of: Callable[[str], Any]
) -> None:
    secret = say("Medication", "a", name=MARKER, dose=1)
    say("Medication", "a", name="Aspirin")

    redact(user, secret)
    work()

    assert found() == []
    assert fields_of("health.medications")["a"]["name"] == "Aspirin"
    assert Redaction.objects.get(user=user).reopened == 1
    assert list(verification.problems(user)) == []


def test_a_record_that_was_retired_since_is_forgotten_with_its_key(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    secret = say("Medication", "a", name=MARKER, dose=1)
    entry = {"kind": "record", "domain": "health", "type": "Medication", "key": "a"}
    api.post(f"{USER}entries/", {**entry, "retired": True})
    work()

    redact(user, secret)
    work()

    assert found() == []
    assert not RecordLocation.objects.filter(user=user, key="a").exists()
    row = Redaction.objects.get(user=user)
    assert (row.version, row.records) == (None, 0)  # the newest version held nothing of it
    assert list(verification.problems(user)) == []


def test_a_constraint_that_rests_on_it_goes(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=200)
    (said,) = entry_log.append(user, [Draft(kind=EntryKind.FACT, content=MARKER)], source="test")
    put(api, work, CONSTRAINT.replace("above a hundred", MARKER), sources=[said.seq])

    redact(user, said.seq)
    work()

    assert found() == []
    assert api.get(f"{USER}constraints/").data["results"] == []
    assert Redaction.objects.get(user=user).constraints == 1
    # The same rule may be added again.
    put(api, work)
    put(api, work, CONSTRAINT.replace("above a hundred", MARKER))
    assert list(verification.problems(user)) == []


def test_a_constraint_that_it_changed_is_as_it_was(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=200)
    put(api, work)
    (said,) = entry_log.append(user, [Draft(kind=EntryKind.FACT, content=MARKER)], source="test")
    put(api, work, CONSTRAINT.replace("above a hundred", MARKER), sources=[said.seq])

    redact(user, said.seq)
    work()

    assert found() == []
    assert api.get(f"{USER}constraints/dose/").data["source"] == CONSTRAINT


def test_a_conflict_with_what_is_gone_is_gone_and_the_other_side_stays(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    secret = say("Medication", "a", name=MARKER, dose=1)
    other = say("Medication", "b", name="Aspirin", dose=1)
    places = [{"domain": "health", "collection": "medications", "key": key} for key in ("a", "b")]
    mark = {"op": "conflict", "about": f"{MARKER}?", "records": places, "sources": [other]}
    api.post(f"{USER}checkpoints/?wait=0", {"edits": [mark]})
    work()
    assert Checkpoint.objects.filter(user=user).count() == 3

    redact(user, secret)
    work()

    assert found() == []
    assert keys(api) == ["b"]
    assert api.get(f"{USER}state/conflicts/conflicts/").data["records"] == []
    row = Redaction.objects.get(user=user)
    assert (row.records, row.reopened) == (2, 0)


# -- Until it is done -----------------------------------------------------------------------------


def test_until_the_project_is_without_it_nothing_is_told_of_it(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=1)
    secret = say("Medication", "b", name=MARKER, dose=2)
    code = {"code": "[m.name for m in medications]"}

    redact(user, secret)

    reads: list[Callable[[], Any]] = [
        lambda: api.get(f"{USER}state/"),
        lambda: api.get(f"{USER}state/health/medications/"),
        lambda: api.get(f"{USER}manifest/"),
        lambda: api.post(f"{USER}query/?wait=0", code),
        lambda: api.post(f"{USER}context/", {"query": MARKER}),
        lambda: api.get(f"{USER}checkpoints/2/"),
        lambda: api.get(f"{USER}checkpoints/2/files/domains/health/state.py"),
        lambda: api.get(f"{USER}diff/?since=v1"),
        lambda: api.post(f"{USER}checkpoints/1/restore/", {}),
    ]
    for read in reads:
        answer = read()
        assert answer.status_code == 503, answer.data
        assert answer["Retry-After"] == "1"
        assert MARKER not in str(answer.data)
    entries = api.get(f"{USER}entries/").data["results"]
    assert MARKER not in str(entries)
    assert entries[1]["redacted_at"] is not None
    # Even weak matches of the question are found; the redacted entry is not.
    found = api.post(f"{USER}search/", {"query": MARKER}).data["hits"]
    assert MARKER not in str(found)
    assert secret not in [hit["seq"] for hit in found]

    work()
    for read in reads[:5]:
        answer = read()
        assert answer.status_code in (200, 202), answer.data


def test_reads_that_rest_on_it_answer_410(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=1)
    secret = say("Medication", "b", name=MARKER, dose=2)
    redact(user, secret)
    work()

    for address in (
        f"{USER}state/?as_of=v2",
        f"{USER}state/?as_of={secret}",
        f"{USER}checkpoints/2/files/domains/health/state.py",
        f"{USER}diff/?since=v2",
    ):
        answer = api.get(address)
        assert (address, answer.status_code) == (address, 410)
        assert "redacted" in answer.data["detail"]
    assert api.get(f"{USER}state/?as_of=v1").status_code == 200
    assert api.get(f"{USER}state/?as_of=v3").status_code == 200
    assert api.get(f"{USER}checkpoints/2/").data["edits"] == [
        {"op": "add", "sources": [secret], "redacted": True}
    ]
    assert api.get(f"{USER}diff/?since=v1").data["added"] == []
    assert api.post(f"{USER}checkpoints/2/restore/", {}).status_code == 410


def test_work_on_the_project_waits_until_then(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    secret = say("Medication", "a", name=MARKER, dose=2)
    redact(user, secret)
    entry = {"kind": "record", "domain": "health", "type": "Medication", "key": "b"}
    api.post(f"{USER}entries/", {**entry, "data": {"name": "Tea", "dose": 1}})

    tasks.work("records", user.pk)
    assert Checkpoint.objects.filter(user=user).count() == 1

    work()
    assert keys(api) == ["b"]
    assert [one.origin for one in Checkpoint.objects.filter(user=user)] == [
        *("records", "redaction", "records")
    ]


def test_a_checkpoint_of_the_entry_that_is_being_made_loses(
    api: APIClient, user: MemoryUser, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an entry is redacted while the gate judges its batch, that version never comes."""
    say("Medication", "aspirin", name="Aspirin", dose=1)
    judge = checks.judge

    def judge_slowly(*args: Any, **kwargs: Any) -> Any:
        verdict = judge(*args, **kwargs)
        if not Redaction.objects.exists():
            redact(user, 2)
        return verdict

    monkeypatch.setattr(checks, "judge", judge_slowly)
    say("Medication", "b", name=MARKER, dose=2)
    work()

    assert found() == []
    assert keys(api) == ["aspirin"]
    assert EntryOutcome.objects.get(user=user, seq=2).reason == "redacted"
    assert entry_log.coverage(user).pending == 0
    assert list(verification.problems(user)) == []


def test_a_proposal_that_is_under_way_is_closed_and_nothing_may_cite_the_entry_again(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    secret = say("Medication", "a", name=MARKER, dose=2)
    edits = [{"op": "note", "text": f"{MARKER}!", "sources": [secret]}]
    waiting = api.post(f"{USER}checkpoints/?wait=0", {"edits": edits}).data["id"]

    redact(user, secret)
    work()

    closed = api.get(f"/v1/runs/{waiting}/").data
    assert (closed["status"], closed["outcome"]) == ("done", "superseded")
    assert "Try again" in closed["error"]["message"]
    assert found() == []
    again = api.post(f"{USER}checkpoints/?wait=0", {"edits": edits}).data["id"]
    work()
    refused = api.get(f"/v1/runs/{again}/").data
    assert refused["outcome"] == "rejected"
    assert "was redacted" in refused["error"]["message"]


# -- What goes wrong ------------------------------------------------------------------------------


def test_killed_redaction_has_no_effect_and_is_repeated(
    api: APIClient, user: MemoryUser, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=1)
    secret = say("Medication", "b", name=MARKER, dose=2)
    redact(user, secret)

    with monkeypatch.context() as patch:
        patch.setattr("memory.alerts.alert_redaction.redact", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tasks.work("redactions", user.pk)
    user.refresh_from_db()
    assert user.head is not None
    assert user.head.version == 2
    assert user.redacting_since is not None
    row = Redaction.objects.get(user=user)
    assert "ZeroDivisionError" in row.last_error

    Redaction.objects.update(run_after=timezone.now())
    work()
    assert found() == []
    assert keys(api) == ["aspirin"]
    assert Checkpoint.objects.filter(user=user).count() == 3
    assert list(verification.problems(user)) == []


def test_redaction_that_the_gate_refuses_is_done_and_shown_to_staff(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    """Given a constraint that cannot be imported without the one record that it reads."""
    say("Medication", "aspirin", name="Aspirin", dose=1)
    (said,) = entry_log.append(
        user, [Draft(kind=EntryKind.FACT, content=f"Weighs 70, {MARKER}")], source="test"
    )
    edits = [
        {"op": "define_class", "domain": "health", "name": "Body",
         "fields": [{"name": "weight", "type": "int"}, {"name": "note", "type": "str"}]},
        {"op": "add", "domain": "health", "class_name": "Body", "collection": "body",
         "singleton": True, "fields": {"weight": 70, "note": MARKER}, "sources": [said.seq]},
    ]  # fmt: skip
    api.post(f"{USER}checkpoints/?wait=0", {"edits": edits})
    work()
    needs = CONSTRAINT.replace("import medications\n", "import body, medications\n")
    needs = needs.replace("> 100", "> 100 or body.weight > 700")
    tests = TESTS.replace("import Medication\n", "import Body, Medication\n").replace(
        ")])", ')], body=Body(key="b", weight=1, note=""))'
    )
    put(api, work, needs, tests)

    redact(user, said.seq)
    work()

    assert found() == []
    row = Redaction.objects.get(user=user)
    assert "body" in row.problem
    assert (row.due_at, row.records) == (None, 1)
    assert "body" not in str(api.get(f"{USER}state/").data["domains"]["health"]["singletons"])
    failed = Alert.objects.get(user=user, kind="constraint_error")
    assert failed.state == AlertState.OPEN
    assert list(verification.problems(user)) == []

    # The gate's objection may quote text that is redacted later
    redact(user, 1)
    work()
    assert Redaction.objects.get(pk=row.pk).problem == "(redacted)"
    told = [one.verdict.get("redaction", {}).get("problem") for one in user.checkpoints.all()]
    assert not any(told[:-1])


def test_why_staff_went_back_to_a_version_goes_and_that_they_did_stays(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=1)
    secret = say("Medication", "secret", name=MARKER, dose=1)
    undone = say("Medication", "ibuprofen", name="Ibuprofen", dose=3)
    back = rollback.restore(
        user, 1, reopen=False, by="staff:eve", reason=f"was told of {MARKER}\nby mistake"
    )
    work()
    assert {place.partition(":")[0] for place in found()} >= {
        *("Checkpoint.verdict", "EntryOutcome.reason")
    }

    redact(user, secret)
    work()

    assert found() == []
    back.refresh_from_db()
    restored = {"version": 1, "by": "staff:eve", "reason": "", "reopened": False}
    assert back.verdict["restored"] == restored
    outcome = EntryOutcome.objects.get(user=user, seq=undone)
    assert outcome.reason == "excluded by the rollback to version 1"
    newest = user.checkpoints.get(version=3)
    with pytest.raises(Redacted):
        rollback.restore(user, newest.version, reopen=False, by="staff:eve")
    assert list(verification.problems(user)) == []


def test_while_the_project_cannot_be_loaded_nothing_is_told_and_it_is_tried_again(
    api: APIClient, user: MemoryUser, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = say("Medication", "b", name=MARKER, dose=2)
    redact(user, secret)

    def broken(*_: Any, **__: Any) -> Any:
        raise checks.GateUnavailable("no sandbox can be had")

    with monkeypatch.context() as patch:
        patch.setattr(checks, "judge", broken)
        before = timezone.now()
        with pytest.raises(checks.GateUnavailable):
            tasks.work("redactions", user.pk)

    assert api.get(f"{USER}state/").status_code == 503
    row = Redaction.objects.get(user=user)
    assert (row.due_at is None, row.attempts) == (False, 1)
    assert row.run_after >= before + datetime.timedelta(seconds=1)
    Redaction.objects.update(run_after=timezone.now())
    work()
    assert found() == []


# -- Asking ---------------------------------------------------------------------------------------


def test_asked_again_it_is_done_once(user: MemoryUser, say: Say, work: Work) -> None:
    secret = say("Medication", "b", name=MARKER, dose=2)
    other = say("Medication", "c", name=MARKER, dose=2)

    first = redact(user, secret)
    assert redact(user, secret).seq == first.seq
    work()
    assert redact(user, secret).seq == first.seq
    assert entry_log.coverage(MemoryUser.objects.get(pk=user.pk)).total == 3

    # Of two entries, one of which is redacted already, the other one is.
    second = redact(user, secret, other)
    assert second.data is not None
    assert (second.seq, second.data["entries"]) == (4, [other])
    work()
    assert found() == []
    assert list(verification.problems(user)) == []


def test_two_redactions_are_served_by_one_version(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    first = say("Medication", "a", name=MARKER, dose=2)
    say("Medication", "b", name="Tea", dose=2)
    second = say("Medication", "c", name=MARKER, dose=2)
    redact(user, first)
    redact(user, second)

    work()

    assert keys(api) == ["b"]
    assert found() == []
    assert Checkpoint.objects.filter(user=user, origin="redaction").count() == 1
    assert not redaction.waiting().exists()


@pytest.mark.parametrize(
    ("seqs", "refusal"),
    [
        ([], "at least one"),
        ([7], "has no entry 7: its last entry is 2"),
        ([1, 0], "has no entry 0"),
    ],
)
def test_unknown_entry_cannot_be_redacted(user: MemoryUser, seqs: list[int], refusal: str) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.FACT, content="x")] * 2, source="test")

    with pytest.raises(redaction.RedactionRefused, match=refusal):
        redact(user, *seqs)

    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()
    assert not Redaction.objects.exists()


def test_record_of_a_redaction_cannot_be_redacted(user: MemoryUser) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.FACT, content="x")], source="test")
    told = redact(user, 1)

    with pytest.raises(redaction.RedactionRefused, match="cannot itself be redacted"):
        redact(user, told.seq)


def test_entry_outside_the_project_is_redacted_at_once(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Medication", "aspirin", name="Aspirin", dose=1)
    (said,) = entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content=MARKER)], source="test")

    redact(user, said.seq)

    assert keys(api) == ["aspirin"]
    work()
    assert found() == []
    assert Checkpoint.objects.filter(user=user).count() == 1
    assert retrieval.manifest(MemoryUser.objects.get(pk=user.pk)).text


def test_a_run_that_is_tried_again_meanwhile_keeps_nothing(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    # Given a proposal that quotes an entry and was given up, and the redaction of the entry
    seq = say("Medication", "w", name=MARKER, dose=5)
    edit = {"op": "note", "text": f"{MARKER} again", "sources": []}
    run = runs.queue(
        user, RunKind.PROPOSAL, RunTrigger.API, checkpoint=user.head, input={"edits": [edit]}
    )
    claimed = runs.claim(str(run.pk))
    assert claimed is not None
    runs.finish(claimed, runs.Result(outcome=RunOutcome.ABANDONED))
    redact(user, seq)
    # When it is tried again before the redaction is carried out
    assert api.post(f"/v1/runs/{run.pk}/retry/").status_code == 202
    work()
    # Then it was never carried out, and nothing of it is left
    run.refresh_from_db()
    assert (run.status, run.input) == (RunStatus.DONE, {"redacted": True})
    assert found() == []
