"""What a workspace does with secrets and personal data that are about to enter it."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.constraints.models.backtests import Backtest
from memory.integrations import imports, merging
from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import content_policy, entry_log, sensitive_text
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.privacy import redaction
from memory.versions.models.runs import Run, RunTrigger
from tests.edits import add, define
from tests.integration.redaction.conftest import found
from tests.steps import settle_records
from workers import tasks

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"
PROPOSE = "/v1/users/ada/checkpoints/"
# Written in parts, so that nobody takes this file for a leak.
SECRET = "AKIA" + "IOSFODNN7EXAMPLE"
MASK = "[masked: secret]"
EMAIL = "ada.rossi@example.com"
TASK = {"kind": "record", "domain": "work", "type": "Task"}

Choose = Callable[..., None]


@pytest.fixture
def choose(workspace: Workspace) -> Choose:
    """Set the policy: an action for each kind that is named, the default for the others."""

    def do(**actions: str) -> None:
        fields = {f"content_{kind}": action for kind, action in actions.items()}
        Workspace.objects.filter(pk=workspace.pk).update(**fields)
        workspace.refresh_from_db()

    return do


def refusal(answer: Any) -> Any:
    """Return the errors of a refused request, which repeat nothing of what was refused."""
    assert answer.status_code == 422
    assert answer.data["type"] == "urn:uac:problem:content-refused"
    assert SECRET not in answer.content.decode()
    assert EMAIL not in answer.content.decode()
    return answer.data["errors"]


def test_without_a_policy_everything_is_stored(api: APIClient, user: MemoryUser) -> None:
    answer = api.post(ENTRIES, {"kind": "message", "content": f"{SECRET} {EMAIL}"})

    assert answer.data["masked"] == []
    assert answer.data["entries"][0]["content"] == f"{SECRET} {EMAIL}"


WAYS: Mapping[str, tuple[dict[str, Any], str, Callable[[LogEntry], Any]]] = {
    "message": ({"kind": "message", "content": f"Use {SECRET}!"}, "content", lambda e: e.content),
    "fact": ({"kind": "fact", "content": f"Use {SECRET}!"}, "content", lambda e: e.content),
    "correction": (
        {"kind": "correction", "content": f"Use {SECRET}!"},
        "content",
        lambda e: e.content,
    ),
    "metadata": (
        {"kind": "message", "content": "Hi", "metadata": {"a": [{"b": f"Use {SECRET}!"}]}},
        "metadata",
        lambda e: e.metadata["a"][0]["b"],
    ),
    "record": (
        {**TASK, "data": {"note": f"Use {SECRET}!", "tags": ["a"]}},
        "data",
        lambda e: e.data["data"]["note"],
    ),
    "nested record": (
        {**TASK, "data": {"steps": [{"note": f"Use {SECRET}!"}]}},
        "data",
        lambda e: e.data["data"]["steps"][0]["note"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_batch", [False, True])
def test_masked_before_anything_is_written(
    api: APIClient, user: MemoryUser, choose: Choose, way: str, is_batch: bool
) -> None:
    choose(secret="masked")
    entry, field, read = WAYS[way]
    body = {"entries": [{"kind": "message", "content": "Hi"}, entry]} if is_batch else entry

    answer = api.post(ENTRIES, body, HTTP_IDEMPOTENCY_KEY="once")

    assert answer.status_code == 202
    seq = 2 if is_batch else 1
    assert answer.data["masked"] == [{"seq": seq, "field": field, "kind": "secret"}]
    assert read(user.entries.get(seq=seq)) == f"Use {MASK}!"
    assert found(SECRET) == []


def test_a_mark_that_was_sent_is_not_told_as_masked(
    api: APIClient, user: MemoryUser, choose: Choose
) -> None:
    choose(secret="masked", email_address="masked")
    sent = [
        {"kind": "message", "content": f"It became {MASK}."},
        {"kind": "message", "content": f"It became {MASK}, ask {EMAIL}.", "metadata": {"a": MASK}},
    ]

    for _ in range(2):
        answer = api.post(ENTRIES, {"entries": sent}, HTTP_IDEMPOTENCY_KEY="once")
        assert answer.data["masked"] == [{"seq": 2, "field": "content", "kind": "email_address"}]


@pytest.mark.parametrize("way", WAYS)
def test_refused_with_the_whole_request(
    api: APIClient, user: MemoryUser, choose: Choose, way: str
) -> None:
    choose(secret="refused")
    entry, field, _ = WAYS[way]

    single = refusal(api.post(ENTRIES, entry))
    batch = refusal(api.post(ENTRIES, {"entries": [{"kind": "message", "content": "Hi"}, entry]}))

    (named,) = single
    assert named.startswith(field)
    assert batch == {"entries": {"1": single}}
    assert user.entries.count() == 0


def test_typed_only_is_masked_in_text_and_stored_in_typed_data(
    api: APIClient, user: MemoryUser, choose: Choose, work: Callable[[], None]
) -> None:
    choose(secret="typed_only")
    message = {"kind": "message", "content": SECRET}
    record = {**TASK, "key": "k", "data": {"token": SECRET}, "metadata": {"why": SECRET}}

    answer = api.post(ENTRIES, {"entries": [message, record]})
    work()

    assert [(one["seq"], one["field"]) for one in answer.data["masked"]] == [
        (1, "content"),
        (2, "metadata"),
    ]
    state = api.get("/v1/users/ada/state/work/tasks/").data
    assert SECRET in str(state)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"kind": "message", "content": "Hi", "session_id": SECRET}, "session_id"),
        ({"kind": "message", "content": "Hi", "agent_id": SECRET}, "agent_id"),
        ({"kind": "message", "content": "Hi", "speaker": SECRET}, "speaker"),
        ({"kind": "message", "content": "Hi", "idempotency_key": SECRET}, "idempotency_key"),
        ({"kind": "message", "content": "Hi", "metadata": {SECRET: 1}}, "metadata"),
        ({**TASK, "key": SECRET, "data": {"a": 1}}, "key"),
        ({**TASK, "data": {SECRET: {"b": SECRET}}}, "data"),
    ],
)
def test_a_name_is_refused_since_a_mask_would_make_two_one(
    api: APIClient, user: MemoryUser, choose: Choose, entry: dict[str, Any], field: str
) -> None:
    choose(secret="masked")

    assert list(refusal(api.post(ENTRIES, entry))) == [field]
    assert user.entries.count() == 0


def test_personal_data_are_masked_by_kind(api: APIClient, user: MemoryUser, choose: Choose) -> None:
    choose(email_address="masked", credit_card="masked")
    text = f"Write to {EMAIL}, call +49 30 901820."
    card = {**TASK, "data": {"card": 4111111111111111, "days": 1764442144}}

    answer = api.post(ENTRIES, {"entries": [{"kind": "message", "content": text}, card]})

    assert [one["kind"] for one in answer.data["masked"]] == ["email_address", "credit_card"]
    message, record = user.entries.order_by("seq")
    assert message.content == "Write to [masked: email_address], call +49 30 901820."
    assert (record.data or {})["data"] == {"card": "[masked: credit_card]", "days": 1764442144}


class TestRepetition:
    """A request that is sent again."""

    MESSAGE = {"kind": "message", "content": f"Use {SECRET}!"}

    def test_has_the_same_answer(self, api: APIClient, user: MemoryUser, choose: Choose) -> None:
        choose(secret="masked")
        first = api.post(ENTRIES, self.MESSAGE, HTTP_IDEMPOTENCY_KEY="once")
        again = api.post(ENTRIES, self.MESSAGE, HTTP_IDEMPOTENCY_KEY="once")

        assert again["Idempotent-Replayed"] == "true"
        assert again.data == first.data
        assert again.data["masked"] == [{"seq": 1, "field": "content", "kind": "secret"}]

    def test_is_recognised_by_a_keyed_hash(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="masked")
        api.post(ENTRIES, self.MESSAGE, HTTP_IDEMPOTENCY_KEY="once")

        # Of a short body, a plain hash would tell the secret to whoever guesses it.
        plain = sha256(canonical_json(["POST", ENTRIES, self.MESSAGE]))
        assert IdempotencyKey.objects.count() == 1
        assert found(plain) == []

    def test_of_an_entry_is_the_same_entry(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="masked")
        entry = {**self.MESSAGE, "idempotency_key": "e-1"}

        for _ in range(2):
            answer = api.post(ENTRIES, entry)
            assert answer.data["masked"] == [{"seq": 1, "field": "content", "kind": "secret"}]
        other = api.post(ENTRIES, {**entry, "content": "Something else"})

        assert other.status_code == 422
        assert user.entries.count() == 1

    @pytest.mark.parametrize("later", ["masked", "refused"])
    def test_of_an_entry_from_before_the_policy_is_that_entry(
        self, api: APIClient, user: MemoryUser, choose: Choose, later: str
    ) -> None:
        entry = {**self.MESSAGE, "idempotency_key": "e-1"}
        api.post(ENTRIES, entry)
        choose(secret=later)

        answer = api.post(ENTRIES, entry)

        assert (answer.status_code, answer.data["entries"][0]["seq"]) == (202, 1)
        assert user.entries.count() == 1

    def test_after_a_refusal_is_possible_with_other_content(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="refused")
        refusal(api.post(ENTRIES, self.MESSAGE, HTTP_IDEMPOTENCY_KEY="once"))

        clean = {"kind": "message", "content": "Use the key!"}
        assert api.post(ENTRIES, clean, HTTP_IDEMPOTENCY_KEY="once").status_code == 202


class TestCode:
    """Proposals and imports, whose code no mask may change."""

    DEFINED = define("work.Task", note="str")

    @pytest.mark.parametrize("action", ["masked", "refused"])
    def test_edits_are_refused(
        self, api: APIClient, user: MemoryUser, choose: Choose, action: str
    ) -> None:
        choose(secret=action)
        edits = [self.DEFINED, add("work.Task", 1, note=SECRET)]

        errors = refusal(api.post(f"{PROPOSE}?wait=0", {"edits": edits}))

        assert list(errors) == ["edits[1].fields.note"]
        assert Run.objects.count() == 0

    def test_edits_may_have_what_is_allowed_in_typed_data(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="typed_only")
        edits = [self.DEFINED, add("work.Task", 1, note=SECRET)]
        assert api.post(f"{PROPOSE}?wait=0", {"edits": edits}).status_code == 202

    def test_a_constraint_is_refused(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="refused")
        body = {"source": f"KEY = {SECRET!r}\n", "tests": "x = 1\n", "sources": []}
        answer = api.put("/v1/users/ada/constraints/leak/?wait=0", body)

        assert list(refusal(answer)) == ["edits[0].source"]
        assert Run.objects.count() == 0

    def test_a_dry_run_is_refused(
        self, manager: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        settle_records(user, {"domain": "work", "type": "Task", "key": "a", "data": {"n": 1}})
        choose(secret="refused")
        body = {"constraint": "leak", "source": f"KEY = {SECRET!r}\n"}

        assert list(refusal(manager.post("/v1/users/ada/backtests/", body))) == ["source"]
        assert Backtest.objects.count() == 0
        assert found(SECRET) == []

    def test_files_are_refused_for_what_is_new_in_them(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        settle_records(user, {"domain": "work", "type": "Task", "key": "a", "data": {"n": SECRET}})
        path = "domains/work/state.py"
        state = api.get(f"{PROPOSE}1/files/{path}").data["source"]
        choose(secret="refused")

        other = SECRET.replace("7", "8")
        assert SECRET in state
        assert api.post(f"{PROPOSE}?wait=0", {"files": {path: f"{state}\n"}}).status_code == 202
        errors = refusal(api.post(PROPOSE, {"files": {path: f"{state}# {other}\n"}}))

        assert list(errors) == [f"files.{path}"]

    def test_an_import_is_refused(self, api: APIClient, user: MemoryUser, choose: Choose) -> None:
        choose(secret="masked")
        files = {"memory.py": f"token = {SECRET!r}\n"}

        assert list(refusal(api.post("/v1/users/ada/import/?wait=0", {"files": files}))) == [
            "files.memory.py"
        ]
        with pytest.raises(content_policy.ContentRefused):
            imports.queue(user, files, RunTrigger.COMMAND)
        assert Run.objects.count() == 0


class TestWhatCannotBeChecked:
    """Content never enters unchecked."""

    def test_what_takes_too_long(
        self, api: APIClient, user: MemoryUser, choose: Choose, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        choose(secret="masked")
        monkeypatch.setattr(content_policy, "MAX_SECONDS", -1.0)

        answer = api.post(ENTRIES, {"kind": "message", "content": "Hi"})

        assert (answer.status_code, user.entries.count()) == (413, 0)

    def test_what_the_server_cannot_find(
        self, api: APIClient, user: MemoryUser, choose: Choose, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        choose(email_address="masked")
        monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
        sensitive_text._recognizers.cache_clear()

        answer = api.post(ENTRIES, {"kind": "message", "content": "Hi"})

        assert (answer.status_code, user.entries.count()) == (503, 0)
        assert answer["Retry-After"]

    def test_many_findings_are_not_all_named(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="refused")
        metadata = {"tokens": [SECRET] * 50}
        entry = {"kind": "message", "content": "Hi", "metadata": metadata}

        errors = refusal(api.post(ENTRIES, entry))

        assert len(errors) == content_policy.MAX_NAMED

    def test_long_names_of_fields_are_cut(
        self, api: APIClient, user: MemoryUser, choose: Choose
    ) -> None:
        choose(secret="refused")
        metadata = {"x" * 10_000: SECRET}

        _, field = refusal(api.post(ENTRIES, {**TestRepetition.MESSAGE, "metadata": metadata}))

        assert len(field) <= content_policy.MAX_FIELD


def test_a_merge_copies_what_is_in_the_log(
    user: MemoryUser, workspace: Workspace, choose: Choose
) -> None:
    other = create_user(workspace, "anon", metadata=None)
    entry_log.append(other, [Draft(kind=EntryKind.MESSAGE, content=SECRET)], source="test")
    choose(secret="refused")

    row = merging.merge(user, other, by="test")
    tasks.work("merges", row.pk)

    assert [entry.content for entry in user.entries.all()] == [SECRET]


def test_a_redaction_is_never_refused(user: MemoryUser, choose: Choose) -> None:
    (entry,) = entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content="Hi")], source="test")
    choose(secret="refused")

    redacted = redaction.redact(user, [entry.seq], by="test", reason=f"it had {SECRET}")

    assert redacted.kind == EntryKind.REDACTION
