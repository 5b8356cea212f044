"""Evidence found by searching BEAM's long conversations with an assistant, for `retrieval`.

A message counts as found if the results contain all of it, or 60 words of it. The search is
compared with a plain recipe: static embeddings over passages of 60 words, the cosine as a z-score,
and one standard deviation more for the user's own messages.
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

from benchmarks.harness import Client, until_embedded
from memory.recall.search import segments, vectors
from memory.recall.search.embeddings.static import load_wordllama
from memory.recall.search.ranking import Ranking, fuse, prefer_own, rank
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.words import identity, terms

WORDS = 60
USER = "user"
BATCH = 1000
NOWHEN = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Message:
    """A message of the user, or an answer of the assistant."""

    role: str
    at: datetime.datetime
    text: str

    @property
    def words(self) -> int:
        """The number of words, which count against a budget."""
        return len(self.text.split())

    @property
    def enough(self) -> int:
        """The number of its words that must be returned for the message to count as found."""
        return min(WORDS, self.words)


@dataclass(frozen=True)
class Question:
    """A question and the places of the messages that answer it."""

    text: str
    evidence: frozenset[int]


@dataclass(frozen=True)
class Dialogue:
    """Messages in order, and questions about them."""

    name: str
    messages: Sequence[Message]
    questions: Sequence[Question]


# Maps a question and a budget to the number of words returned of each message.
Search = Callable[[str, int], Counter[int]]


def read_dialogues(path: Path) -> list[Dialogue]:
    """Read the recorded conversations, without questions that have no evidence."""
    found = []
    for recorded in json.loads(path.read_text()):
        messages: list[Message] = []
        at = NOWHEN
        places = {}
        for number, role, anchor, text in recorded["messages"]:
            if anchor:
                at = datetime.datetime.strptime(f"{anchor} +0000", "%B-%d-%Y %z")
            places[number] = len(messages)
            messages.append(Message(role, at, text))
        questions = [
            Question(one["question"], evidence)
            for one in recorded["questions"]
            if (evidence := frozenset(places[id_] for id_ in one["evidence"] if id_ in places))
        ]
        found.append(Dialogue(f"beam-{recorded['id']}", messages, questions))
    return found


def evidence_found(
    way: Callable[[Dialogue], Search], dialogues: Sequence[Dialogue], budgets: Sequence[int]
) -> dict[int, float]:
    """Return budget → the mean share of evidence found over the questions, in per cent."""
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
    """Return a search over HTTP, by the server itself."""
    from memory.recall.search.excerpts import GAP

    status, body = client.post("users/", {"user_id": dialogue.name})
    assert status == 201, body
    entries = [
        {
            "kind": "message",
            "content": one.text,
            "role": one.role,
            "occurred_at": one.at.isoformat(),
        }
        for one in dialogue.messages
    ]
    for start in range(0, len(entries), BATCH):
        body = {"entries": entries[start : start + BATCH]}
        status, answer = client.post(f"users/{dialogue.name}/entries/", body)
        assert status == 202, answer

    until_embedded(client, dialogue.name, dialogue.messages[0].text[:100])

    def search(question: str, budget: int) -> Counter[int]:
        body = {"query": question, "top_k": 1000, "words": budget, "in": ["archive"]}
        status, found = client.post(f"users/{dialogue.name}/search/", body)
        assert status == 200, found
        return Counter(
            {hit["seq"] - 1: len(hit["text"].replace(GAP, " ").split()) for hit in found["hits"]}
        )

    return search


def plain(dialogue: Dialogue) -> Search:
    """Return a search by the plain recipe."""
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


def by_signal(signal: str) -> Callable[[Dialogue], Search]:
    """Return a search of the same passages, ranked by `words` or by `meaning` alone."""

    def way(dialogue: Dialogue) -> Search:
        from memory.models import LogEntry
        from memory.models.log import EntryKind

        return signal_of(
            signal,
            [
                LogEntry(
                    seq=place + 1,
                    kind=EntryKind.MESSAGE,
                    content=one.text,
                    role=one.role,
                    occurred_at=one.at,
                )
                for place, one in enumerate(dialogue.messages)
            ],
        )

    return way


def signal_of(signal: str, entries: Sequence[Any]) -> Search:
    """Return the ranking of these messages' passages by `words` or by `meaning` alone."""
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
    """Return the number of words of each message in the best passages that fit."""
    returned: Counter[int] = Counter()
    for passage in np.argsort(-scores, kind="stable").tolist():
        place, words = sizes[passage]
        if words <= budget:
            returned[place] += words
            budget -= words
            if not budget:
                break
    return returned
