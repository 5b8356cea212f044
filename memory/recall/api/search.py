"""`/v1/users/{user_id}/search/`: searching entries by words and by meaning."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations
from memory.kernel.http.serializers import (
    MomentField,
    StrictSerializer,
    numbers,
    strings,
    validated,
)
from memory.kernel.http.stored import AnyObjectField
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.users import MemoryUser
from memory.kernel.users import ASKED, WITH_HEAD
from memory.log.documents import places_of
from memory.log.models.entries import EntryKind, LogEntry, Trust
from memory.recall.api.completing import (
    DATES,
    TAKEN_AS,
    QuestionDatesSerializer,
    complete_question,
)
from memory.recall.api.turns import TurnsField
from memory.recall.search import filters
from memory.recall.search.documents import CorpusName
from memory.recall.search.finding import find
from memory.recall.search.results import Explanation, Found, Hit, Meaning
from memory.recall.search.statuses import Status, Statuses
from memory.versions.api.moments import AsOfSerializer, read_state_as_of

MAX_QUERY = 10_000
MAX_TOP_K = 1000
MAX_WORDS = 100_000
HISTORY = "history"


_FILTER = {"$ref": "#/components/schemas/SearchFilter"}


def _filter_schema() -> dict[str, Any]:
    """Return the schema of `filters`, which may contain themselves."""
    text = {"type": "string", "maxLength": filters.MAX_TEXT}
    held: dict[str, dict[str, Any]] = {
        "text": text,
        "kind": {"type": "string", "enum": ["message", "fact", "record", "correction"]},
        "trust": {"type": "string", "enum": Trust.values},
        "number": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "time": {"type": "string", "format": "day-or-moment"},
    }
    properties: dict[str, Any] = {}
    for key, column in filters.COLUMNS.items():
        value = held[column.holds]
        operators: dict[str, Any] = dict.fromkeys(filters.operators_of(column), value)
        operators["in"] = {"type": "array", "items": value, "minItems": 1, "maxItems": 1000}
        condition = {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": operators,
        }
        properties[key] = {"oneOf": [value, condition]}
    group = {"type": "array", "items": _FILTER, "minItems": 1, "maxItems": filters.MAX_CONDITIONS}
    return {
        "type": "object",
        "additionalProperties": False,
        "description": "Conditions on entries; if there are several keys, all must match. A value"
        " without an operator means `eq`.",
        "properties": {**properties, "AND": group, "OR": group, "NOT": _FILTER},
        "patternProperties": {
            r"^metadata\.[^.]+(\.[^.]+)*$": {
                "type": ["string", "number", "boolean", "null"],
                "maxLength": filters.MAX_TEXT,
            }
        },
    }


class SearchSerializer(StrictSerializer):
    """A search: the query, and where to search."""

    rules = {
        "properties": {
            "as_of": {"format": "moment"},
            "in": {"uniqueItems": True},
            "filters": {"type": None, "additionalProperties": None, **_FILTER},
        }
    }
    definitions = {"SearchFilter": _filter_schema()}

    query = serializers.CharField(max_length=MAX_QUERY, help_text="A question, or search terms.")
    messages = TurnsField()
    top_k = serializers.IntegerField(
        default=10, min_value=1, max_value=MAX_TOP_K, help_text="Maximum number of hits."
    )
    words = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_WORDS,
        help_text="The maximum total number of words in the hits' texts. A hit that does not fit is"
        " skipped in favour of later hits that do. Combine `words` with a large"
        " `top_k`.",
    )
    filters = serializers.DictField(
        required=False,
        allow_empty=False,
        help_text=f"Keys: {', '.join(filters.KEYS)}; operators: {', '.join(filters.OPERATORS)};"
        ' groups: AND and OR with a list, NOT with an object. {"speaker": "Ada", "occurred_at":'
        ' {"gte": "2026-03-01"}} requires both conditions. A day stands for all of its time in the'
        " user's time zone: `lte` includes its evening, `gt` begins after it, and `eq` matches any"
        " time within it.",
    )
    threshold = serializers.FloatField(
        default=0.0, min_value=0, max_value=1, help_text="Hits with a lower score are left out."
    )
    as_of = MomentField(
        required=False,
        help_text="Search what was known as of an entry (its number, such as 120), a version (v7),"
        " a day (at its end) or a point in time.",
    )
    include = serializers.ChoiceField(
        choices=[HISTORY],
        required=False,
        help_text="history: also return facts and records that no longer hold, each after what"
        " replaced or retired it. By default, they are left out.",
    )
    explain = serializers.BooleanField(default=False, help_text="Explain the rank of each hit.")

    def to_internal_value(self, data: Any) -> Any:
        """Validate the fields; `include` may be a list, as the name suggests."""
        match data:
            case {"include": [name]}:
                data = {**data, "include": name}
        return super().to_internal_value(data)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields plus `in`, which can't be declared because it's a Python keyword."""
        fields = super().get_fields()
        corpora = serializers.ListField(
            child=serializers.ChoiceField(choices=[name.value for name in CorpusName]),
            min_length=1,
            max_length=len(CorpusName),
            default=[name.value for name in CorpusName],
            help_text="facts: facts, corrections and typed records; archive: messages.",
        )
        return {**fields, "in": corpora}


class NamedEntrySerializer(serializers.Serializer[LogEntry]):
    """The number and id that identify an entry."""

    seq = serializers.IntegerField()
    id = serializers.UUIDField()


class QueryTermSerializer(serializers.Serializer[Any]):
    """The contribution of a query term to a hit's score."""

    term = serializers.CharField()
    heard = serializers.FloatField(
        help_text="How often the term occurs in the entry, plus a fraction (a half, a quarter, …)"
        " of its occurrences in neighbouring entries of the same session."
    )
    score = serializers.FloatField(help_text="The part of the score that comes from the term.")


class ExplanationSerializer(serializers.Serializer[Explanation]):
    """The explanation for a hit's rank."""

    rank = serializers.IntegerField(
        help_text="The hit's rank by score among all entries in the corpus."
    )
    of = serializers.IntegerField(help_text="The number of entries in the corpus.")
    speaker_named = serializers.BooleanField(
        help_text="Whether the query names the speaker of this entry. If it names other speakers,"
        " the score is reduced by a third."
    )
    terms = QueryTermSerializer(many=True)
    meaning = serializers.FloatField(
        help_text="The part of the score that comes from the similarity in meaning between the"
        " passage and the query."
    )


class HitSerializer(serializers.Serializer[Hit]):
    """An entry that was found."""

    corpus = serializers.ChoiceField(choices=[name.value for name in CorpusName])
    score = serializers.FloatField(
        help_text="0 to 1: 1 means that all words match fully and that the meaning is the same as"
        " the query's."
    )
    text = serializers.CharField(
        help_text="For a record, its fields; for a long text, the passages that match."
    )
    is_cut = serializers.BooleanField(
        help_text="Whether `text` is only a part of the entry's text."
    )
    status = serializers.ChoiceField(
        source="status.status",
        choices=[status.value for status in Status],
        allow_null=True,
        default=None,
        help_text="Whether the entry still holds. current: it is a fact without a correction, or a"
        " record of which at least one value that the entry gave still stands. replaced: it was"
        " corrected, or none of its values stands. retired: its record was retired. lapsed: it"
        " would be current, but the last day on which it holds is over. Null for messages, and for"
        " records that are not part of the state: pending, rejected, dismissed.",
    )
    replaced_by = serializers.IntegerField(
        source="status.replaced_by",
        allow_null=True,
        default=None,
        help_text="The number of the entry that replaced this one: the correction, or the entry"
        " whose values stand now.",
    )
    retired_by = serializers.IntegerField(
        source="status.retired_by",
        allow_null=True,
        default=None,
        help_text="The number of the entry that retired the record.",
    )
    seq = serializers.IntegerField(source="entry.seq")
    id = serializers.UUIDField(source="entry.id")
    kind = serializers.ChoiceField(source="entry.kind", choices=EntryKind.choices)
    trust = serializers.ChoiceField(
        source="entry.trust",
        choices=Trust.choices,
        help_text="Where the entry comes from. Filter by it with `filters`.",
    )
    place = serializers.SerializerMethodField(
        help_text="Where in which document the entry stands, such as `page 3 of lease.pdf`; null if"
        " it comes from none."
    )
    speaker = serializers.CharField(source="entry.speaker", allow_null=True)
    role = serializers.CharField(source="entry.role", allow_null=True)
    session_id = serializers.CharField(source="entry.session_id", allow_null=True)
    occurred_at = serializers.DateTimeField(source="entry.occurred_at")
    recorded_at = serializers.DateTimeField(source="entry.recorded_at")
    metadata = AnyObjectField(source="entry.metadata", allow_null=True)
    entries = serializers.SerializerMethodField(
        help_text="The entry itself, and the entries that it was derived from."
    )
    explanation = ExplanationSerializer(allow_null=True)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_place(self, hit: Hit) -> str | None:
        """Return where in a document the entry stands."""
        places: dict[int, str] = self.context["places"]
        return places.get(hit.entry.seq)

    @extend_schema_field(NamedEntrySerializer(many=True))
    def get_entries(self, hit: Hit) -> list[dict[str, Any]]:
        """Return the entries that the hit is based on."""
        ids: dict[int, Any] = self.context["ids"]
        return [{"seq": seq, "id": ids[seq]} for seq in hit.rests_on if seq in ids]


class MeaningSerializer(serializers.Serializer[Meaning]):
    """The contribution of the search by meaning to the results."""

    model = serializers.CharField(
        allow_null=True,
        help_text="The embedding model, or both models while logs are being re-embedded; null"
        " if the results come from keyword search only.",
    )
    compared = serializers.IntegerField(
        help_text="The number of passages compared with the query by meaning."
    )
    problem = serializers.CharField(
        allow_null=True,
        help_text="Why some passages were not compared by meaning; null if nothing is wrong.",
    )


class FoundSerializer(serializers.Serializer[Any]):
    """The results of a search, best first."""

    hits = HitSerializer(many=True)
    terms = strings("The terms that were searched for: the query without stop words.")
    taken_as = serializers.CharField(allow_null=True, help_text=TAKEN_AS)
    dates = QuestionDatesSerializer(allow_null=True, help_text=DATES)
    lapsed = numbers(
        "The numbers of the entries that rank among the hits and are left out because they have"
        " lapsed: the last day on which they hold is over. `include` `history` returns them."
    )
    searched = serializers.DictField(
        child=serializers.IntegerField(), help_text="Corpus → number of entries searched."
    )
    meaning = MeaningSerializer()
    as_of = AsOfSerializer(allow_null=True, help_text="Null means the current state.")


class Search(UserScopedView):
    """Search entries by words and by meaning."""

    costly = ("post",)
    reads_only = True

    @operations.read(request=SearchSerializer, responses=FoundSerializer)
    def post(self, request: Request, user_id: str) -> Response:
        """Return the entries that best match a query; ties are broken newest first.

        Facts and records that no longer hold are left out, unless history is asked for. The search
        covers the current log, including all entries appended by earlier requests.
        """
        data = validated(SearchSerializer, request.data)
        user = self.memory_user(WITH_HEAD if "as_of" in data else ASKED)
        snapshot = read_state_as_of(user, data["as_of"], "as_of") if "as_of" in data else None
        results = find(
            user,
            complete_question(user, data),
            corpora=[CorpusName(name) for name in data["in"]],
            top_k=data["top_k"],
            words=data.get("words"),
            where=_where(data["filters"], user.time_zone) if "filters" in data else None,
            up_to=snapshot.seq if snapshot else None,
            threshold=data["threshold"],
            explain=data["explain"],
            statuses=Statuses(user, snapshot),
            history=data.get("include") == HISTORY,
        )
        answer = {
            "hits": results.hits,
            "terms": results.terms,
            "taken_as": results.question.taken_as,
            "dates": results.question.dates,
            "lapsed": results.lapsed,
            "searched": results.searched,
            "meaning": results.meaning,
            "as_of": snapshot.to_json() if snapshot else None,
        }
        places = places_of(user.pk, [hit.entry for hit in results.hits])
        context = {"ids": _ids(user, results), "places": places}
        return Response(FoundSerializer(answer, context=context).data)


def _where(given: Any, time_zone: str) -> Any:
    try:
        return filters.condition(given, time_zone)
    except filters.BadFilter as error:
        raise serializers.ValidationError({"filters": [str(error)]}) from None


def _ids(user: MemoryUser, results: Found) -> dict[int, Any]:
    """Return the ids of the entries that the hits are based on, keyed by `seq`."""
    ids = {hit.entry.seq: hit.entry.pk for hit in results.hits}
    missing = {seq for hit in results.hits for seq in hit.rests_on} - ids.keys()
    if missing:
        named = LogEntry.objects.filter(user=user, seq__in=missing)
        ids |= dict(named.values_list("seq", "pk"))
    return ids
