"""Measure how often the answer to a paraphrased question is among the first five results.

`paraphrases.txt` contains records and messages of ten invented people, and a question about each of
these entries. The questions should share no word with their answers; those that do are counted and
left out. Each person's entries are ranked as the server's search ranks them, by words alone and
with meaning. No server runs.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import benchmarks.standalone  # noqa: F401 # first: what follows needs it
from benchmarks.harness import Row, parser, report
from memory.models import LogEntry
from memory.models.log import EntryKind
from memory.recall.search import segments, vectors
from memory.recall.search.documents import NUMBERS, CorpusName, documents_of
from memory.recall.search.embeddings.static import StaticEmbedder, load_wordllama
from memory.recall.search.ranking import fuse, prefer_own, rank
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.words import identity, terms

TEXT = Path(__file__).with_name("paraphrases.txt")
FIRST = 5
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
_RECORD = re.compile(r"(?P<domain>\w+) (?P<type>\w+) (?P<fields>.+)")


@dataclass(frozen=True)
class Person:
    """A person's entries, and a question about each of them."""

    name: str
    entries: Sequence[LogEntry]
    questions: Sequence[str]


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, people=(None, 1)).parse_args()
    rows, figures = measure(read_people(TEXT.read_text())[: asked.people])
    report("paraphrases", settings={"first": FIRST}, rows=rows, figures=figures, path=asked.json)


def measure(people: Sequence[Person]) -> tuple[list[Row], dict[str, float]]:
    """Return a row for each person, and as figures the percentages of answers found.

    There is one percentage for ranking by words alone, and one for the full search.
    """
    model = load_wordllama()
    rows: list[Row] = []
    for person in people:
        documents = [
            one for entry in person.entries for one in documents_of(entry, ZoneInfo("UTC"))
        ]
        segment = segments.build(documents)
        made = vectors.quantised(model.name, model.embed([one.text for one in documents]))
        said = {one.seq: set(one.terms) for one in documents}
        row: Row = {"person": person.name, "questions": 0, "shared": 0, "words": 0, "search": 0}
        for seq, question in enumerate(person.questions, 1):
            if said[seq] & {identity(term) for term in terms(question)}:
                row["shared"] += 1
                continue
            row["questions"] += 1
            row["words"] += seq in best(segment, question, None, None)
            row["search"] += seq in best(segment, question, model, made)
        rows.append(row)
    number = sum(row["questions"] for row in rows)
    return rows, {
        "questions": number,
        "words_at_5": round(100 * sum(row["words"] for row in rows) / number, 1),
        "search_at_5": round(100 * sum(row["search"] for row in rows) / number, 1),
    }


def best(
    segment: Segment,
    question: str,
    model: StaticEmbedder | None,
    made: vectors.Vectors | None,
) -> list[int]:
    """Return the numbers of the best-ranked entries; without a model, rank by words alone."""
    asked = list(dict.fromkeys(terms(question)))
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


def read_people(text: str) -> list[Person]:
    """Parse the people, their entries (each dated to a day of its own) and their questions."""
    people = []
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.strip().splitlines()
        told = [line for line in lines if line]
        entries = list(_entries(told[::2]))
        people.append(Person(name, entries, [line.removeprefix("? ") for line in told[1::2]]))
    return people


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


if __name__ == "__main__":
    main()
