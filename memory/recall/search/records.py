"""What typed records are found by besides the words of their entries.

A record is also found by the name of its collection, by what its class says of itself, and, for
less, by what the records say that it refers to. All of this is read when somebody searches, from
the newest version and from the index as they are; of an entry nothing but marks is indexed for it.
So nothing of one entry is in the index of another, where a redaction would have to find it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from memory.models import Checkpoint, LogEntry, MemoryUser
from memory.models.log import EntryKind
from memory.project import Outline
from memory.project.names import spaced
from memory.recall.search import index
from memory.recall.search.documents import NUMBERS, CorpusName, class_mark, key_of, value_mark
from memory.recall.search.ranking import Corpus, Places, Postings
from memory.recall.search.segments import Segment, corpus_of
from memory.recall.search.words import identity, terms

# What a record says counts so much for those that refer to it; of so many, the best, it is known.
REFERRED = 0.5
MOST_REFERRED = 5


def classes_described(
    user: MemoryUser, asked: Sequence[str], outline: Outline | None = None
) -> dict[int, set[int]]:
    """Return mark of a class → those of these terms by which it is described; of others nothing.

    `outline` is that of the newest version, which is read if it is not given.
    """
    if user.head_id is None or not asked:
        return {}
    if outline is None:
        head = Checkpoint.objects.filter(pk=user.head_id).values_list("outline", flat=True)
        stored = head.first()  # None if the user is erased meanwhile
        outline = Outline.from_json(stored) if stored else Outline()
    found = {}
    for domain in outline.domains.values():
        names = defaultdict[str, list[str]](list)
        for collection in domain.collections.values():
            names[collection.class_name].append(spaced(collection.name))
        for singleton in domain.singletons.values():
            names[singleton.class_name].append(spaced(singleton.name))
        for class_name, named in names.items():
            said = terms(" ".join([*named, domain.classes[class_name].doc]))
            if shared := {*said} & {*asked}:
                mark = identity(class_mark(domain.name, class_name))
                found[mark] = {*map(identity, shared)}
    return found


def with_context(
    user: MemoryUser,
    corpus: Corpus,
    asked: Sequence[int],
    described: Mapping[int, set[int]],
    live: dict[index.Range, Segment],
) -> Corpus:
    """Return a corpus whose records also have the terms of the records that they refer to, and
    those by which their classes are described. `live` is what `index.read` has kept."""
    if user.head_id is None:
        return corpus
    more = defaultdict[int, list[Postings]](list)
    for term, places in _referring(user, corpus, asked, live):
        more[term].append(Postings(places, np.full(len(places), REFERRED)))
    for mark, said in described.items():
        if found := corpus.postings.get(mark):
            for term in said:
                more[term].append(found)
    postings = dict(corpus.postings)
    for term, added in more.items():
        postings[term] = _joined([*filter(None, [postings.get(term)]), *added])
    return replace(corpus, postings=postings)


def _referring(
    user: MemoryUser,
    corpus: Corpus,
    asked: Sequence[int],
    live: dict[index.Range, Segment],
) -> Iterator[tuple[int, Places]]:
    """Yield terms that records say, and the places of those that refer to these records."""
    said = {term: corpus.postings[term] for term in asked if term in corpus.postings}
    weights = np.zeros(len(corpus.seqs))
    for found in said.values():
        weights[found.places] += 1 / len(found.places)
    best = np.lexsort((corpus.seqs, weights))[-MOST_REFERRED:]
    seqs = [int(corpus.seqs[place]) for place in best if weights[place]]
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
        # What was read a moment later may have other entries.
        places = np.flatnonzero(np.isin(corpus.seqs, others.seqs[having.places]))
        for term, own in said.items():
            if (corpus.seqs[own.places] == seq).any():
                yield term, places


def _joined(postings: Sequence[Postings]) -> Postings:
    """All of these, where several name a place the largest."""
    places, where = np.unique(np.concatenate([one.places for one in postings]), return_inverse=True)
    counts = np.zeros(len(places))
    np.maximum.at(counts, where, np.concatenate([one.counts for one in postings]))
    return Postings(places, counts)
