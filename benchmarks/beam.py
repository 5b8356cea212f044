"""Measure how much evidence a search finds in BEAM's long conversations, for `retrieval`.

The conversations are those of users with an assistant. A message counts as found if the results
contain at least 60 of its words, or all of a shorter message. The server's search is compared with
a simple recipe: static embeddings of 60-word passages, ranked by the z-score of the cosine, plus
one standard deviation for the user's own messages.
"""

import datetime
import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Client, append, expect, until_embedded
from memory.recall.search import segments, vectors
from memory.recall.search.embeddings.static import load_wordllama
from memory.recall.search.ranking import Ranking, fuse, prefer_own, rank
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.words import identity, terms

WORDS = 60
USER = "user"
NOWHEN = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Message:
    """A message from the user, or an answer from the assistant."""

    role: str
    at: datetime.datetime
    text: str

    @property
    def words(self) -> int:
        """The number of words in the message."""
        return len(self.text.split())

    @property
    def enough(self) -> int:
        """The number of the message's words that must be returned for it to count as found."""
        return min(WORDS, self.words)


@dataclass(frozen=True)
class Question:
    """A question, and the positions of the messages that answer it."""

    text: str
    evidence: frozenset[int]


@dataclass(frozen=True)
class Dialogue:
    """A conversation's messages in order, and the questions about them."""

    name: str
    messages: Sequence[Message]
    questions: Sequence[Question]


# A function that takes a question and a budget of words, and returns how many words of each message
# it returned.
Search = Callable[[str, int], Counter[int]]


def read_dialogues(path: Path) -> list[Dialogue]:
    """Read the recorded conversations, leaving out questions that have no evidence."""
    found = []
    for recorded in json.loads(path.read_text()):
        messages: list[Message] = []
        at = NOWHEN
        places = {}
        for number, role, anchor, text in recorded["messages"]:
            if anchor:
                at = moment_of(anchor)
            places[number] = len(messages)
            messages.append(Message(role, at, text))
        questions = [
            Question(one["question"], evidence)
            for one in recorded["questions"]
            if (evidence := frozenset(places[id_] for id_ in one["evidence"] if id_ in places))
        ]
        found.append(Dialogue(f"beam-{recorded['id']}", messages, questions))
    return found


def moment_of(anchor: str) -> datetime.datetime:
    """Read a day as in BEAM: March-15-2024."""
    return datetime.datetime.strptime(f"{anchor} +0000", "%B-%d-%Y %z")


def evidence_found(
    way: Callable[[Dialogue], Search], dialogues: Sequence[Dialogue], budgets: Sequence[int]
) -> dict[int, float]:
    """Return, for each budget, the share of evidence found: the mean over all questions, in %."""
    shares: dict[int, list[float]] = {budget: [] for budget in budgets}
    for dialogue in dialogues:
        search = way(dialogue)
        for question in dialogue.questions:
            for budget in budgets:
                returned = search(question.text, budget)
                if returned.total() > budget:
                    raise AssertionError(f"{returned.total()} words were returned, of {budget}")
                found = sum(
                    returned[place] >= dialogue.messages[place].enough
                    for place in question.evidence
                )
                shares[budget].append(found / len(question.evidence))
    return {budget: round(100 * statistics.mean(of), 1) for budget, of in shares.items()}


def over_http(client: Client, dialogue: Dialogue) -> Search:
    """Post the conversation to the server; return a function that searches it over HTTP."""
    from memory.recall.search.excerpts import GAP

    expect(201, client.post("users/", {"user_id": dialogue.name}))
    entries = [
        {
            "kind": "message",
            "content": one.text,
            "role": one.role,
            "occurred_at": one.at.isoformat(),
        }
        for one in dialogue.messages
    ]
    append(client, dialogue.name, entries)
    until_embedded(client, dialogue.name, dialogue.messages[0].text[:100])

    def search(question: str, budget: int) -> Counter[int]:
        body = {"query": question, "top_k": 1000, "words": budget, "in": ["archive"]}
        found = expect(200, client.post(f"users/{dialogue.name}/search/", body))
        return Counter(
            {hit["seq"] - 1: len(hit["text"].replace(GAP, " ").split()) for hit in found["hits"]}
        )

    return search


def plain(dialogue: Dialogue) -> Search:
    """Return a function that searches the conversation by the simple recipe."""
    model = load_wordllama()
    passages = [
        (place, " ".join(words[start : start + WORDS]))
        for place, message in enumerate(dialogue.messages)
        for words in [message.text.split()]
        for start in range(0, len(words), WORDS)
    ]
    made = model.embed([text for _, text in passages])
    of_user = np.array([dialogue.messages[place].role == USER for place, _ in passages])
    sizes = [(place, len(text.split())) for place, text in passages]

    def search(question: str, budget: int) -> Counter[int]:
        close = made @ model.embed([question])[0]
        return packed(sizes, (close - close.mean()) / close.std() + of_user, budget)

    return search


def by_signal(signal: str, dialogue: Dialogue) -> Search:
    """Return a function that searches the server's passages by `words` or by `meaning` alone."""
    from memory.log.models.entries import EntryKind, LogEntry

    entries = [
        LogEntry(
            seq=place + 1,
            kind=EntryKind.MESSAGE,
            content=one.text,
            role=one.role,
            occurred_at=one.at,
        )
        for place, one in enumerate(dialogue.messages)
    ]
    return signal_of(signal, entries)


def signal_of(signal: str, entries: Sequence[Any]) -> Search:
    """Return a function that searches these messages by `words` or by `meaning` alone."""
    from memory.recall.search.documents import documents_of

    model = load_wordllama()
    documents = [one for entry in entries for one in documents_of(entry, ZoneInfo("UTC"))]
    segment = segments.build(documents)
    made = vectors.quantised(model.name, model.embed([one.text for one in documents]))
    sizes = [(one.seq - 1, len(one.text.split())) for one in documents]

    def search(question: str, budget: int) -> Counter[int]:
        if signal == "words":
            ranking = _by_words(segment, question)
        else:
            close = [made.closeness(model.embed([question])[0])]
            corpus = replace(corpus_of([segment], 0, [], close), is_conversation=True)
            (ranking,) = fuse([(corpus, rank(corpus, [], []))])
        return packed(sizes, ranking.scores, budget)

    return search


def _by_words(segment: Segment, question: str) -> Ranking:
    asked = list(dict.fromkeys(terms(question)))
    identities = [identity(term) for term in asked]
    names = [identity(SPEAKER_PREFIX + term) for term in asked]
    corpus = corpus_of([segment], 0, [*identities, *names])
    return prefer_own(corpus, rank(corpus, identities, names, explain=False))


def packed(sizes: Sequence[tuple[int, int]], scores: NDArray[Any], budget: int) -> Counter[int]:
    """Return how many words of each message are in the best passages that fit the budget."""
    returned: Counter[int] = Counter()
    for passage in np.argsort(-scores, kind="stable").tolist():
        place, words = sizes[passage]
        if words <= budget:
            returned[place] += words
            budget -= words
            if not budget:
                break
    return returned
