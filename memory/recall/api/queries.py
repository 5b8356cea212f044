"""`/v1/users/{user_id}/query/`: running code on the state."""

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations, waiting
from memory.kernel.http.serializers import (
    numbers,
    strings,
    validated,
)
from memory.kernel.http.stored import (
    RunErrorField,
    TimingsField,
    ValueField,
    WarningField,
)
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.users import ASKED, WITH_HEAD
from memory.log.documents import places_of
from memory.log.models.entries import LogEntry, Trust
from memory.recall import queries
from memory.versions.api.moments import AsOfSerializer
from memory.versions.api.runs import (
    FAILURES,
    QUERY_WAIT_SECONDS,
    MomentSerializer,
    RunSerializer,
    VersionField,
    answer_with,
    instant_asked,
    known_state,
    may_run_again,
)
from memory.versions.models.runs import Run, RunOutcome, RunStatus

TIES = (
    "For each choice in the code, such as `most_common(1)` or `max(…, key=…)`, what it left out"
    " although it is as good."
)
LAPSED = (
    "The records that the code reads and that had lapsed: their last day, `lapses_after`, was over."
    " They are left out, except for single records, unless the code names `lapses_after` or"
    " `has_lapsed`."
)
# Maximum number of records named as evidence in an answer; the run itself names more of them.
EVIDENCE_NAMED = 20


class QuerySerializer(MomentSerializer):
    """Python code to run on the user's state."""

    code = serializers.CharField(
        max_length=queries.MAX_CODE,
        help_text="An expression, or statements. The value is that of the last statement: an"
        " expression, or what it assigns or returns. What surrounds the code, such as a Markdown"
        " fence, is left out.",
    )


class EvidenceColumnsSerializer(serializers.Serializer[Any]):
    """Evidence for an answer: records of one class in one collection, with their entries."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    count = serializers.IntegerField(
        help_text="The number of these records, also of those that are not named."
    )
    keys = strings()
    sources = serializers.ListField(
        child=numbers(),
        help_text="For each of `keys`, the numbers of the entries that the record comes from.",
    )

    def get_fields(self) -> dict[str, Any]:
        """Return the fields plus `class`, which can't be declared because it's a Python keyword."""
        return {"class": serializers.CharField(), **super().get_fields()}


class CollectionReadSerializer(serializers.Serializer[Any]):
    """A collection that the code reads."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    count = serializers.IntegerField(help_text="The number of records in the collection.")


class RestsOnSerializer(serializers.Serializer[Any]):
    """The evidence for an answer."""

    scope = serializers.ChoiceField(
        choices=["value", "selected", "read"],
        help_text="`value`: the records in the value; `selected`: the records that the code's only"
        " comprehension selects; `read`: all records that the code reads.",
    )
    count = serializers.IntegerField(help_text="The number of records in the evidence.")
    records = EvidenceColumnsSerializer(
        many=True,
        help_text="These records by class and collection: all are counted, and the first"
        f" {EVIDENCE_NAMED} are named.",
    )
    places = serializers.DictField(
        child=serializers.CharField(),
        help_text="Of the entries of these records that come from documents: number → where, such"
        " as `page 3 of lease.pdf`.",
    )
    collections = CollectionReadSerializer(many=True)
    more = serializers.CharField(
        allow_null=True,
        help_text="The URL of the run whose `output.evidence` names more of the records: the first"
        " 1000, or the first 100 if `scope` is `read`. Null if all of them are named here.",
    )


@extend_schema_field(RestsOnSerializer(allow_null=True))
class RestsOnField(serializers.Field[Any, Any, Any, Any]):
    """The evidence of a finished run, for its answer; null if it has none."""

    def __init__(self) -> None:
        super().__init__(source="*")

    def to_representation(self, value: Run) -> dict[str, Any] | None:
        """Return all counts, and the names of the first records.

        Naming all records of a sum over a thousand would take thousands of a model's tokens.
        """
        evidence = (value.output or {}).get("evidence")
        if evidence is None:
            return None
        room, records = EVIDENCE_NAMED, []
        for one in evidence["records"]:
            named = {name: one[name][:room] for name in ("keys", "sources")}
            records.append({**one, **named})
            room -= len(named["keys"])
        is_whole = evidence["count"] <= EVIDENCE_NAMED - room
        more = None if is_whole else reverse("run-detail", args=[value.pk])
        apart = ("set_aside", "lapsed")  # which the answer has beside its evidence
        shown = {name: one for name, one in evidence.items() if name not in apart}
        seqs = {seq for one in records for sources in one["sources"] for seq in sources}
        entries = LogEntry.objects.filter(user=value.user_id, seq__in=seqs, trust=Trust.DOCUMENT)
        places = places_of(value.user_id, entries if seqs else [])
        named = {str(seq): place for seq, place in sorted(places.items())}
        return {**shown, "records": records, "places": named, "more": more}


class SetAsideReadSerializer(serializers.Serializer[Any]):
    """A field that the code reads and that has no value in some records, because none fitted."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    field = serializers.CharField()
    count = serializers.IntegerField(help_text="The number of values that are set aside.")
    keys = serializers.ListField(
        child=serializers.CharField(), help_text="The first records with such a value."
    )


class LapsedSerializer(serializers.Serializer[Any]):
    """Records of a collection that the code reads and that had lapsed, or a single such record."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    count = serializers.IntegerField(help_text="The number of these records.")
    keys = serializers.ListField(
        child=serializers.CharField(), help_text="The keys of the first of them."
    )


class AnswerSerializer(serializers.Serializer[Run]):
    """The answer to a query: the value exactly as computed, in typed JSON, with its evidence."""

    id = serializers.UUIDField(source="pk", help_text="The id of the run that computed the value.")
    status = serializers.ChoiceField(choices=RunStatus.choices)
    outcome = serializers.ChoiceField(choices=RunOutcome.choices)
    value = ValueField(source="output.value", default=None)
    type = serializers.CharField(
        source="output.type",
        allow_null=True,
        default=None,
        help_text="The name of the value's Python type.",
    )
    evidence = RestsOnField()
    set_aside = SetAsideReadSerializer(
        many=True,
        source="output.evidence.set_aside",
        default=list,
        help_text="The fields that the code reads and whose values in some records were set aside,"
        " because they do not fit: the value does not count these.",
    )
    lapsed = LapsedSerializer(
        many=True, source="output.evidence.lapsed", default=list, help_text=LAPSED
    )
    ties = strings(TIES, source="output.ties", default=list)
    cached = serializers.BooleanField(
        default=bool,
        help_text="Whether the value was computed for an earlier request, in which case `id` is the"
        " id of that request's run.",
    )
    stdout = serializers.CharField(help_text="What the code printed: the last 8 KiB of it.")
    code = serializers.CharField(
        source="input.code", default=str, help_text="The code that was run."
    )
    checkpoint = VersionField()
    as_of = AsOfSerializer(
        source="input.as_of",
        allow_null=True,
        default=None,
        help_text="Null means the current state.",
    )
    instant = serializers.DateTimeField()
    runner = serializers.CharField()
    warning = WarningField()
    error = RunErrorField()
    timings = TimingsField()


class Query(UserScopedView):
    """Query a user's state with Python code."""

    costly = ("post",)
    reads_only = True

    @operations.write(
        {200: AnswerSerializer, 202: RunSerializer, **FAILURES},
        [waiting.WAIT],
        request=QuerySerializer,
    )
    def post(self, request: Request, user_id: str) -> Response:
        """Run the code on the newest version of the user's project, and return the value.

        200 with the value, which may come from a cache: on the same version, code that does not use
        `now` returns the same value all day. A request repeated with its `Idempotency-Key` gets the
        same run, even if its code failed; a new run if the server failed, or the same one again if
        it was abandoned. 422 with the outcome and the error if the code failed or hit a limit; 503
        if the server failed; 202 with the run if it did not finish in time.
        """
        limit = waiting.seconds(request, default=QUERY_WAIT_SECONDS)
        data = validated(QuerySerializer, request.data)
        user = self.memory_user(WITH_HEAD if {"as_of", "by", "at"} & data.keys() else ASKED)
        snapshot, _ = known_state(user, data)
        code, instant = data["code"], instant_asked(user, data, snapshot)

        def find_or_queue() -> tuple[Run, dict[str, Any]]:
            """Return a run, and what its answer says in place of the run itself."""
            earlier = queries.find_cached(snapshot, code, instant)
            if earlier is None:
                return queries.queue(snapshot, code, instant), {}
            at = serializers.DateTimeField().to_representation(instant)
            return earlier, {"cached": True, "as_of": snapshot.to_json(), "instant": at}

        run, also = self.once(find_or_queue, user, has_failed=lambda found: may_run_again(found[0]))
        return answer_with(self, run, AnswerSerializer, limit, **also)
