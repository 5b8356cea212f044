"""Questions about invented people in thirteen languages, and the entries that answer them.

`paraphrases.txt` contains records and messages of invented people, and a question about each of
these entries, which should share no word with its answer. Some speak English. Each of the others
speaks another language, and has the entries and questions of one of those, translated. The people
who are kept back check a search that was tuned by the rest.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from memory.log.models.entries import EntryKind, LogEntry
from memory.recall.search import segments, vectors
from memory.recall.search.documents import NUMBERS, CorpusName, documents_of
from memory.recall.search.embeddings.interface import Embedder
from memory.recall.search.followups import Question
from memory.recall.search.ranking import fuse, prefer_own, rank
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.words import identity

TEXT = Path(__file__).with_suffix(".txt")
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
# A question finds its entry if that is among so many of the best.
FIRST = 5
_TITLE = re.compile(
    r"(?P<name>[^(]+?)(?: \((?P<language>\w+), as (?P<original>.+)\))?(?P<kept>, kept back)?"
)
_RECORD = re.compile(r"(?P<domain>\w+) (?P<type>\w+) (?P<fields>.+)")


@dataclass(frozen=True)
class Person:
    """A person's entries, and a question about each of them.

    `original` names the person whose entries and questions are translated here, if any.
    """

    name: str
    entries: Sequence[LogEntry]
    questions: Sequence[str]
    language: str = "en"
    original: str | None = None


def read_people(text: str, *, kept_back: bool = False) -> list[Person]:
    """Parse the people, their entries (each dated to a day of its own) and their questions.

    They are those who are kept back, or the others.
    """
    people = []
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, *lines = part.strip().splitlines()
        if (match := _TITLE.fullmatch(title)) is None:
            raise ValueError(f"not a person: {title}")
        told = [line for line in lines if line]
        entries = list(_entries(told[::2]))
        questions = [line.removeprefix("? ") for line in told[1::2]]
        language = match["language"] or "en"
        if kept_back == (match["kept"] is not None):
            people.append(Person(match["name"], entries, questions, language, match["original"]))
    return people


def find_answers(person: Person, questions: Sequence[str], model: Embedder | None) -> list[bool]:
    """Return whether each question finds its entry, leaving out those that share a word with it."""
    documents = [one for entry in person.entries for one in documents_of(entry, ZoneInfo("UTC"))]
    segment = segments.build(documents)
    made = None
    if model is not None:
        made = vectors.quantised(model.name, model.embed([one.text for one in documents]))
    said = {one.seq: set(one.terms) for one in documents}
    return [
        seq in _best(segment, question, model, made)
        for seq, question in enumerate(questions, 1)
        if not said[seq] & {identity(term) for term in Question(question).weights()}
    ]


def _entries(lines: Sequence[str]) -> Iterator[LogEntry]:
    for seq, line in enumerate(lines, 1):
        at = NOON + seq * DAY
        if line.startswith("> "):
            yield LogEntry(
                seq=seq, kind=EntryKind.MESSAGE, content=line[2:], role="user", occurred_at=at
            )
            continue
        if (match := _RECORD.fullmatch(line)) is None:
            raise ValueError(f"neither a message nor a record: {line}")
        fields = dict(field.split("=", 1) for field in match["fields"].split("; "))
        data = {"domain": match["domain"], "type": match["type"], "data": fields}
        yield LogEntry(seq=seq, kind=EntryKind.RECORD, data=data, occurred_at=at)


def _best(
    segment: Segment, question: str, model: Embedder | None, made: vectors.Vectors | None
) -> list[int]:
    """Return the numbers of the best-ranked entries; without a model, rank by words alone."""
    asked = list(Question(question).weights())
    identities = [identity(term) for term in asked]
    names = [identity(SPEAKER_PREFIX + term) for term in asked]
    close = [made.closeness(model.embed([question])[0])] if model and made else None
    corpora = [
        corpus_of([segment], NUMBERS[name], [*identities, *names], close) for name in CorpusName
    ]
    ranked = [(one, rank(one, identities, names, explain=False)) for one in corpora]
    rankings = fuse(ranked) if close else [prefer_own(*one) for one in ranked]
    scored = [
        (-score, seq)
        for corpus, ranking in zip(corpora, rankings, strict=True)
        for score, seq in zip(ranking.scores.tolist(), corpus.seqs.tolist(), strict=True)
        if score > 0
    ]
    return [seq for _, seq in sorted(scored)[:FIRST]]
