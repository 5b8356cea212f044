"""The records and facts that new entries are about, ranked by the search that `context` uses."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import structlog
from django.db.models import Q
from django.db.models.expressions import RawSQL

from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.users import Lane, MemoryUser
from memory.log.models.entries import STATEMENTS, EntryKind, EntryOutcome, LogEntry
from memory.project import Add, Note, Outline, Record, RecordId, Update
from memory.project.names import DEFAULT_DOMAIN, key_of_entry
from memory.project.typed import encode
from memory.project.values import Value
from memory.recall.search.documents import CorpusName, key_of
from memory.recall.search.finding import MAX_TERMS, find
from memory.recall.search.words import terms
from memory.versions.models.checkpoints import Checkpoint, RecordLocation

logger = structlog.get_logger(__name__)

# Limits on what is searched for: characters of an entry, and searches, each of MAX_TERMS terms;
# and on the entries that are found.
MAX_CHARACTERS = 4000
MAX_SEARCHES = 12
MAX_FOUND = 40
# A lower score means that an entry shares neither words nor a topic with the text.
MIN_SCORE = 0.35
# How many versions are searched for the records that were made from the facts found.
MAX_VERSIONS = 40
# The edits of a version that cite some of the given entries.
_CITING = "jsonb_path_query_array(edits::jsonb, '$[*] ? (@.sources[*] == $seqs[*])', %s::jsonb)"
# Each ranking adds 1 / (RANK_OFFSET + rank) to a record's score, so that it counts which records
# are first, but not how far ahead they are.
RANK_OFFSET = 5


def find_entries(
    lane: Lane,
    user: MemoryUser,
    outline: Outline,
    new: Sequence[LogEntry],
    texts: Iterable[str],
) -> list[LogEntry]:
    """Return the facts and typed entries that are about what these texts say, best first.

    `new` are the entries that the texts belong to, which are left out. No text is sent to a
    provider of embeddings once the lease on the lane is lost, since it may be redacted. While a log
    cannot be searched, as much of it is still being indexed, what was found so far is returned: the
    model is shown less, but its work goes on.
    """
    best: dict[int, tuple[float, LogEntry]] = {}
    others = ~Q(seq__in=[entry.seq for entry in new])
    for text in _questions(texts):
        try:
            results = find(
                user,
                text,
                corpora=[CorpusName.FACTS],
                top_k=MAX_FOUND,
                threshold=MIN_SCORE,
                where=others,
                outline=outline,
                lease=lane,
            )
        except LimitExceeded as error:
            logger.warning("related_not_searched", user=user.pk, limit=error.limit)
            break
        for hit in results.hits:
            if hit.score > best.get(hit.entry.seq, (0.0, hit.entry))[0]:
                best[hit.entry.seq] = (hit.score, hit.entry)
    ranked = sorted(best.values(), key=lambda one: -one[0])
    return [entry for _, entry in ranked[:MAX_FOUND]]


def _questions(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts joined so that each search has about as many terms as it may have."""
    questions: list[list[str]] = [[]]
    seen = set[str]()
    for text in texts:
        new = {*terms(text[:MAX_CHARACTERS])}
        if len(seen | new) > MAX_TERMS and questions[-1]:
            questions.append([])
            seen = set()
        seen |= new
        questions[-1].append(text[:MAX_CHARACTERS])
    yield from ("\n".join(parts) for parts in questions[:MAX_SEARCHES] if any(parts))


def locate_records(
    user: MemoryUser,
    entries: Iterable[LogEntry],
    scanned: Mapping[RecordId, Record],
    *,
    has_others: bool,
) -> dict[RecordId, int]:
    """Map the live records that were made from facts and typed entries to the entries' ranks.

    A record made from several of the entries gets the best rank. If the project has records other
    than the `scanned` ones, those are located by the edits that made them.
    """
    names: dict[tuple[str, str], int] = {}
    statements: dict[int, int] = {}
    for rank, entry in enumerate(entries):
        if entry.kind == EntryKind.RECORD:
            names.setdefault(
                ((entry.data or {}).get("domain", DEFAULT_DOMAIN), key_of(entry)), rank
            )
        elif entry.kind in STATEMENTS:
            statements[entry.seq] = rank
    found = {
        record_id: min(ranks)
        for record_id, record in scanned.items()
        if (ranks := [statements[seq] for seq in record.sources if seq in statements])
    }
    cited = {seq for record_id in found for seq in scanned[record_id].sources}
    for edit in _edits_of(user, statements.keys() - cited) if has_others else ():
        if (name := _name_of(edit)) is not None:
            ranks = [statements[seq] for seq in edit["sources"] if seq in statements]
            names[name] = min([*ranks, *([names[name]] if name in names else [])])
    keys = {key for _, key in names}
    live = RecordLocation.objects.filter(user=user, key__in=keys, retired_version=None)
    for domain, collection, key in live.values_list("domain", "collection", "key"):
        if (domain, key) in names:
            record_id = RecordId(domain, collection, key)
            found[record_id] = min(names[domain, key], found.get(record_id, names[domain, key]))
    return found


def _edits_of(user: MemoryUser, seqs: Collection[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the edits of earlier versions that cite some of these entries."""
    settled = EntryOutcome.objects.filter(user=user, seq__in=seqs, checkpoint__isnull=False)
    versions = Checkpoint.objects.filter(pk__in=settled.order_by().values("checkpoint"))
    # The database chooses the edits, so that only these few are read and parsed.
    citing = RawSQL(_CITING, [json.dumps({"seqs": sorted(seqs)})])  # noqa: S611 # a constant
    chosen = versions.order_by("-version").values_list(citing, flat=True)[:MAX_VERSIONS]
    for edits in chosen if seqs else ():
        yield from json.loads(edits)


def _name_of(edit: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the domain and key of the record that an edit makes or changes, if it does either."""
    if edit.get("redacted"):
        return None
    match edit["op"]:
        case Update.op:
            return edit["domain"], edit["key"]
        case Add.op:
            key = edit.get("key") or key_of_entry(edit["class_name"], max(edit["sources"]))
            return edit["domain"], key
        case Note.op:
            return "notes", key_of_entry("Note", max(edit["sources"]))
    return None


def rank_records(
    ranks: Mapping[RecordId, int], scanned: Mapping[RecordId, Record], texts: Iterable[str]
) -> list[RecordId]:
    """Return the records that the texts are about, best first.

    `ranks` are records with the ranks of their entries in the search. The `scanned` records are
    ranked by the words that they share with the texts, since a record may say it in other words
    than its entries.
    """
    scores = defaultdict[RecordId, float](float)
    by_search = sorted(ranks, key=lambda record_id: ranks[record_id])
    for ranked in (by_search, _rank_by_words(scanned, texts)):
        for rank, record_id in enumerate(ranked):
            scores[record_id] += 1 / (RANK_OFFSET + rank)
    return sorted(scores, key=lambda record_id: -scores[record_id])


def _rank_by_words(records: Mapping[RecordId, Record], texts: Iterable[str]) -> list[RecordId]:
    query_terms = {*terms(" ".join(texts))}
    words = {
        record_id: query_terms & {*terms(_text_of(record))} for record_id, record in records.items()
    }
    uses = Counter(word for shared in words.values() for word in shared)
    # Words that occur in more than half of the records don't help distinguish records.
    common = {word for word, count in uses.items() if count > max(2, len(records) / 2)}
    weights = {
        record_id: sum(1 / uses[word] for word in shared - common)
        for record_id, shared in words.items()
    }
    alike = [record_id for record_id, weight in weights.items() if weight]
    return sorted(alike, key=lambda record_id: -weights[record_id])


def _text_of(record: Record) -> str:
    return " ".join([record.key, *(text_of(value) for value in record.fields.values())])


def text_of(value: Value) -> str:
    """Return a value as text: of a reference its key, of an object and a list what is in it."""
    return _plain(encode(value))


def _plain(value: Any) -> str:
    match value:
        case {"$ref": _, "key": key}:
            return str(key)
        case {"$object": _, "fields": fields}:
            return _plain(list(fields.values()))
        case dict():
            return _plain(next(iter(value.values()), ""))
        case list():
            return " ".join(map(_plain, value))
    return "" if value is None else str(value)
