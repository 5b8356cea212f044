"""Ways to find typed records other than by the words in their own entries.

A record can also be found by its collection's name, by its class's docstring and, with less weight,
by the words of the records it refers to. All of this is read at search time, from the newest
version and the current index; the stored index only contains marks for classes and referenced
values. So an entry's content is never indexed as part of another entry, where a redaction would
have to find it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind, LogEntry
from memory.project import Outline
from memory.project.names import spaced
from memory.recall.search import index
from memory.recall.search.documents import NUMBERS, CorpusName, class_mark, key_of, value_mark
from memory.recall.search.ranking import Corpus, Places, Postings
from memory.recall.search.segments import Segment, corpus_of
from memory.recall.search.words import identity, searchable_terms
from memory.versions.models.checkpoints import Checkpoint

# REFERRED is the weight a record's words have for the records that refer to that record. Only the
# words of the MAX_REFERRED best records are used in this way.
REFERRED = 0.5
MAX_REFERRED = 5


def classes_described(
    user: MemoryUser, query_terms: Sequence[str], outline: Outline | None = None
) -> dict[int, set[int]]:
    """Map the mark of each class to the search terms in its description; omit classes without any.

    `outline` is the newest version's outline, which is read if it is not given.
    """
    if user.head_id is None or not query_terms:
        return {}
    if outline is None:
        head = Checkpoint.objects.filter(pk=user.head_id).values_list("outline", flat=True)
        stored = head.first()  # None if the user has just been erased
        outline = Outline.from_json(stored) if stored else Outline()
    matching = {}
    for domain in outline.domains.values():
        names = defaultdict[str, list[str]](list)
        for holder in domain.holders.values():
            names[holder.class_name].append(spaced(holder.name))
        for class_name, named in names.items():
            words = searchable_terms(" ".join([*named, domain.classes[class_name].doc]))
            if shared := words & {*query_terms}:
                mark = identity(class_mark(domain.name, class_name))
                matching[mark] = {*map(identity, shared)}
    return matching


def with_context(
    user: MemoryUser,
    corpus: Corpus,
    query_terms: Sequence[int],
    described: Mapping[int, set[int]],
    live: dict[index.Range, Segment],
) -> Corpus:
    """Return the corpus with postings added for terms from each record's class and referents.

    `live` is the cache of `index.read`.
    """
    if user.head_id is None:
        return corpus
    more = defaultdict[int, list[Postings]](list)
    for term, places in _referring(user, corpus, query_terms, live):
        more[term].append(Postings(places, np.full(len(places), REFERRED)))
    for mark, class_terms in described.items():
        if posting := corpus.postings.get(mark):
            for term in class_terms:
                more[term].append(posting)
    postings = dict(corpus.postings)
    for term, added in more.items():
        postings[term] = _joined([*filter(None, [postings.get(term)]), *added])
    return replace(corpus, postings=postings)


def _referring(
    user: MemoryUser,
    corpus: Corpus,
    query_terms: Sequence[int],
    live: dict[index.Range, Segment],
) -> Iterator[tuple[int, Places]]:
    """Yield each term in a record with the positions of records that refer to that record."""
    postings = {term: corpus.postings[term] for term in query_terms if term in corpus.postings}
    weights = np.zeros(len(corpus.seqs))
    for posting in postings.values():
        weights[posting.places] += 1 / len(posting.places)
    best = np.lexsort((corpus.seqs, weights))[-MAX_REFERRED:]
    seqs = [int(corpus.seqs[position]) for position in best if weights[position]]
    entries = LogEntry.objects.filter(
        user=user, seq__in=seqs, kind=EntryKind.RECORD, redacted_at=None
    ).only("seq", "data")
    marks = {entry.seq: identity(value_mark(key_of(entry))) for entry in entries} if seqs else {}
    if not marks:
        return
    others = corpus_of(
        index.read(user, [*marks.values()], live=live), NUMBERS[CorpusName.FACTS], marks.values()
    )
    for seq, mark in marks.items():
        if (having := others.postings.get(mark)) is None:
            continue
        # This second read of the index may have found different entries than the first.
        places = np.flatnonzero(np.isin(corpus.seqs, others.seqs[having.places]))
        for term, own in postings.items():
            if (corpus.seqs[own.places] == seq).any():
                yield term, places


def _joined(postings: Sequence[Postings]) -> Postings:
    """Return the union of these postings, with the highest count at each position."""
    places, where = np.unique(np.concatenate([one.places for one in postings]), return_inverse=True)
    counts = np.zeros(len(places))
    np.maximum.at(counts, where, np.concatenate([one.counts for one in postings]))
    return Postings(places, counts)
