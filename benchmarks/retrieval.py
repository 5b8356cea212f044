"""Compare how much evidence UaC's search and other searches find in recorded conversations.

The conversations in `locomo.json` (in UAC_DATA_DIR) are posted to a server, turn by turn, and the
server is asked their questions of categories 1 to 4. The measure is the share of the turns named as
evidence that are in the results, with budgets of 3,000 and 1,500 words. In the same run, other
methods search the conversations in chunks of 300 words: BM25 with stemming, PostgreSQL's ts_rank,
and MiniLM. All of them pack their results by one rule: best first, skipping those that do not fit.

The two signals of the server's search, words and meaning, are also measured separately, without a
server. The same is done with the long conversations in `beam.json`, if it exists; see
benchmarks/beam.py.

The details of the search by words were tuned on every other conversation in LOCOMO, beginning with
the first; the conversations in between were held out, and are reported separately. The weights of
words, meaning and speaker were chosen once, on all conversations in LOCOMO and BEAM. At the end,
all LOCOMO questions are asked again over HTTP for users with 2,000, 10,000 and 50,000 entries, one
request at a time, and the cost of the last user's index is measured (benchmarks/search_index.py).
"""

import argparse
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks import beam, search_index
from benchmarks.harness import (
    Client,
    Row,
    append,
    data_file,
    end_without_data,
    expect,
    new_client,
    parser,
    percentiles,
    report,
    require_data,
    settings_of,
    until,
    until_embedded,
)
from benchmarks.locomo import CATEGORIES, Conversation, Question, Turn, read_conversations
from benchmarks.minilm import NOT_INSTALLED, MiniLm, model_folder
from deploy.embedded.system import System, running_system

BUDGETS = (3000, 1500)
CHUNK = 300
SPACE_FOR_TAIL = 128


# A function that takes a question and a budget of words, and returns the positions of the turns
# found.
Search = Callable[[str, int], set[int]]


@dataclass
class Tally:
    """The share of the evidence that one way of searching has found, by budget.

    It covers one half of the conversations, or both halves.
    """

    found: Counter[tuple[int, int]] = field(default_factory=Counter)
    wanted: Counter[tuple[int, int]] = field(default_factory=Counter)
    shares: dict[int, list[float]] = field(default_factory=dict)

    def add(self, question: Question, budget: int, returned: set[int]) -> None:
        """Count how much of a question's evidence was returned."""
        found = len(question.evidence & returned)
        self.found[budget, question.category] += found
        self.wanted[budget, question.category] += len(question.evidence)
        self.shares.setdefault(budget, []).append(found / len(question.evidence))

    def __add__(self, other: "Tally") -> "Tally":
        shares = {
            budget: self.shares.get(budget, []) + other.shares.get(budget, []) for budget in BUDGETS
        }
        return Tally(self.found + other.found, self.wanted + other.wanted, shares)

    def evidence(self, budget: int, *categories: int) -> float | None:
        """Return the share of evidence turns found, in %, for these categories or for all."""
        chosen = categories or tuple(CATEGORIES)
        found = sum(self.found[budget, one] for one in chosen)
        wanted = sum(self.wanted[budget, one] for one in chosen)
        return round(100 * found / wanted, 1) if wanted else None

    def per_question(self, budget: int) -> float:
        """Return the mean, over all questions, of the share of evidence found, in %."""
        return round(100 * statistics.mean(self.shares[budget]), 1)


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(
        __doc__,
        conversations=(None, 2),
        sessions=(None, 3),
        questions=(None, 3),
        entries=(2_000, 1_000),
        more_entries=(10_000, 1_100),
        many_entries=(50_000, 1_200),
        dialogues=(None, 1),
    ).parse_args()
    conversations = choose_conversations(asked)
    problems = []
    dialogues: list[beam.Dialogue] = []
    if of_beam_path := data_file("beam.json"):
        dialogues = beam.read_dialogues(of_beam_path)[: asked.dialogues]
    else:
        problems.append("beam.json is missing: long conversations are not measured")
    with running_system(sandbox_workers=0) as system:
        settings_of(system)
        client = new_client(system, "retrieval")
        ways = ways_to_search(client, system)
        if "minilm" not in ways:
            problems.append(NOT_INSTALLED)
        tallies = {name: tally(way, conversations) for name, way in ways.items()}
        of_beam = beam_figures(client, dialogues) if dialogues else {}
        timings = timing_figures(client, conversations, asked)
    timings |= search_index.compare_figures(0.01 if asked.quick else 1.0)
    rows = [
        row(name, half, of_half)
        for name, halves in tallies.items()
        for half, of_half in halves.items()
    ]
    figures = figures_of(tallies) | of_beam | timings
    settings = {
        "conversations": [one.name for one in conversations],
        "kept_back": [one.name for one in conversations[1::2]],
        "chunk_words": CHUNK,
        "entries": [asked.entries, asked.more_entries, asked.many_entries],
        "dialogues": [one.name for one in dialogues],
    }
    report(
        "retrieval",
        settings=settings,
        rows=rows,
        figures=figures,
        path=asked.json,
        problems=problems,
    )


def choose_conversations(asked: argparse.Namespace) -> list[Conversation]:
    """Read the requested conversations; exit if there are none."""
    (path,) = require_data("locomo.json")
    conversations = [
        one
        for each in read_conversations(path)[: asked.conversations]
        if (one := each.beginning(asked.sessions, asked.questions)).questions
    ]
    if not conversations:
        end_without_data("locomo.json has no conversation with questions about its beginning")
    return conversations


def ways_to_search(client: Client, system: System) -> dict[str, Callable[[Conversation], Search]]:
    """Return the ways to search, keyed by name; they include MiniLM if it is installed."""
    ways: dict[str, Callable[[Conversation], Search]] = {
        "search": lambda one: over_http(client, one),
        "words": lambda one: by_signal("words", one),
        "meaning": lambda one: by_signal("meaning", one),
        "bm25": bm25,
        "ts_rank": lambda one: ts_rank(system, one),
    }
    folder = model_folder()
    if folder is not None:
        model = MiniLm(folder)
        ways["minilm"] = lambda one: minilm(model, one)
    return ways


def timing_figures(
    client: Client, conversations: Sequence[Conversation], asked: argparse.Namespace
) -> dict[str, Any]:
    """Return how long requests take with ever more entries, and what the last index costs."""
    timings = time_requests(client, conversations, asked.entries)
    for name, entries in (("10000", asked.more_entries), ("50000", asked.many_entries)):
        slower = time_requests(client, conversations, entries)
        timings |= {f"{one}_{name}": slower[one] for one in ("p50_ms", "p95_ms")}
    question = conversations[0].questions[0].text
    return timings | search_index.index_figures(f"long-{asked.many_entries}", question)


def tally(
    way: Callable[[Conversation], Search], conversations: Sequence[Conversation]
) -> dict[str, Tally]:
    """Search in one way for all questions; return the tallies for each half and for both."""
    halves = {"tuned": Tally(), "kept_back": Tally()}
    for index, conversation in enumerate(conversations):
        search = way(conversation)
        half = halves["kept_back" if index % 2 else "tuned"]
        for question in conversation.questions:
            for budget in BUDGETS:
                returned = search(question.text, budget)
                half.add(question, budget, returned)
    halves = {name: half for name, half in halves.items() if half.shares}
    return {**halves, "both": sum(halves.values(), Tally())}


# -- The ways to search ------------------------------------------------------------------------


def over_http(client: Client, conversation: Conversation) -> Search:
    """Post the conversation to the server; return a function that searches it over HTTP."""
    post(client, conversation.name, conversation.turns)
    until_embedded(client, conversation.name, conversation.questions[0].text)

    def search(question: str, budget: int) -> set[int]:
        body = {"query": question, "top_k": 1000, "words": budget, "in": ["archive"]}
        found = expect(200, client.post(f"users/{conversation.name}/search/", body))
        words = {hit["seq"] - 1: len(hit["text"].split()) for hit in found["hits"]}
        if sum(words.values()) > budget:
            raise AssertionError(f"{sum(words.values())} words were returned, of {budget}")
        return returned_turns(conversation, words)

    return search


def by_signal(signal: str, conversation: Conversation) -> Search:
    """Return a function that searches the server's passages by `words` or by `meaning` alone."""
    from memory.log.models.entries import EntryKind, LogEntry

    entries = [
        LogEntry(
            seq=place + 1,
            kind=EntryKind.MESSAGE,
            content=turn.text,
            speaker=turn.speaker,
            session_id=turn.session,
            occurred_at=turn.at,
        )
        for place, turn in enumerate(conversation.turns)
    ]
    search = beam.signal_of(signal, entries)
    return lambda question, budget: returned_turns(conversation, search(question, budget))


def returned_turns(conversation: Conversation, words: Mapping[int, int]) -> set[int]:
    """Return the turns of which enough words were returned to count as found.

    That is all words of a turn, or as many as suffice in the long conversations (`beam.WORDS`).
    """
    turns = conversation.turns
    return {place for place, size in words.items() if size >= min(beam.WORDS, turns[place].words)}


def bm25(conversation: Conversation) -> Search:
    """Return a search of chunks by BM25."""
    chunks = list(chunks_of(conversation))
    scores = bm25_scores([text_of(conversation, chunk) for chunk in chunks])
    return lambda question, budget: packed(conversation, chunks, scores(question), budget)


def bm25_scores(texts: Sequence[str]) -> Callable[[str], list[float]]:
    """Return a function that scores texts by BM25 (k1 1.2, b 0.75): stemmed, no stop words."""
    from memory.recall.search.words import terms

    counts = [Counter(terms(text)) for text in texts]
    having = Counter(term for count in counts for term in count)
    average = statistics.mean(count.total() for count in counts)
    rarity = {
        term: math.log(1 + (len(texts) - number + 0.5) / (number + 0.5))
        for term, number in having.items()
    }

    def score(count: Counter[str], asked: Sequence[str]) -> float:
        damping = 1.2 * (0.25 + 0.75 * count.total() / average)
        return sum(
            rarity[term] * count[term] * 2.2 / (count[term] + damping)
            for term in asked
            if term in count
        )

    def scores(question: str) -> list[float]:
        asked = terms(question)
        return [score(count, asked) for count in counts]

    return scores


def ts_rank(system: System, conversation: Conversation) -> Search:
    """Return a search of chunks by PostgreSQL's ts_rank; any of the question's words may match."""
    chunks = list(chunks_of(conversation))
    texts = [text_of(conversation, chunk) for chunk in chunks]
    database = psycopg.connect(system.services.postgres.owner_url, autocommit=True)
    database.execute("CREATE TEMPORARY TABLE chunk (place int, vector tsvector)")
    for place, text in enumerate(texts):
        database.execute("INSERT INTO chunk VALUES (%s, to_tsvector('english', %s))", [place, text])

    def search(question: str, budget: int) -> set[int]:
        rows = database.execute(
            """
            SELECT ts_rank(vector, query) FROM chunk, (
                SELECT replace(plainto_tsquery('english', %s)::text, '&', '|')::tsquery AS query
            ) AS asked ORDER BY place
            """,
            [question],
        )
        return packed(conversation, chunks, [float(rank) for (rank,) in rows], budget)

    return search


def minilm(model: MiniLm, conversation: Conversation) -> Search:
    """Return a search of chunks by the cosine of MiniLM's vectors."""
    chunks = list(chunks_of(conversation))
    vectors = model.encode([text_of(conversation, chunk) for chunk in chunks])
    asked: dict[str, list[float]] = {}

    def search(question: str, budget: int) -> set[int]:
        if question not in asked:
            asked[question] = (vectors @ model.encode([question])[0]).tolist()
        return packed(conversation, chunks, asked[question], budget)

    return search


def chunks_of(conversation: Conversation) -> Iterator[list[int]]:
    """Split a conversation into chunks of whole turns: up to 300 words, or one longer turn."""
    chunk: list[int] = []
    size = 0
    for place, turn in enumerate(conversation.turns):
        if chunk and size + turn.words > CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(place)
        size += turn.words
    yield chunk


def text_of(conversation: Conversation, chunk: Sequence[int]) -> str:
    """Return a chunk as text to search; its dates and speakers do not count against the budget."""
    turns = [conversation.turns[place] for place in chunk]
    days = dict.fromkeys(f"{turn.at:%d %B %Y}" for turn in turns)
    return "\n".join([*days, *(f"{turn.speaker}: {turn.text}" for turn in turns)])


def packed(
    conversation: Conversation,
    chunks: Sequence[Sequence[int]],
    scores: Sequence[float],
    budget: int,
) -> set[int]:
    """Return the turns in the best chunks that fit the budget."""
    returned: set[int] = set()
    for chunk in sorted(range(len(chunks)), key=lambda one: -scores[one]):
        words = sum(conversation.turns[place].words for place in chunks[chunk])
        if words <= budget:
            returned.update(chunks[chunk])
            budget -= words
    return returned


def beam_figures(client: Client, dialogues: Sequence[beam.Dialogue]) -> dict[str, Any]:
    """Return the figures for BEAM: the server's search, its two signals, and the simple recipe."""
    ways: dict[str, Callable[[beam.Dialogue], beam.Search]] = {
        "beam": lambda one: beam.over_http(client, one),
        "beam_plain": beam.plain,
        "beam_words": lambda one: beam.by_signal("words", one),
        "beam_meaning": lambda one: beam.by_signal("meaning", one),
    }
    figures = {
        f"{name}_{budget}": share
        for name, way in ways.items()
        for budget, share in beam.evidence_found(way, dialogues, BUDGETS).items()
    }
    for budget in BUDGETS:
        gain = figures[f"beam_{budget}"] - figures[f"beam_plain_{budget}"]
        figures[f"above_plain_{budget}"] = round(gain, 1)
    return figures


# -- Timing the search endpoint ----------------------------------------------------------------


def post(client: Client, user_id: str, turns: Sequence[Turn]) -> None:
    """Create a user and append the turns as messages."""
    expect(201, client.post("users/", {"user_id": user_id}))
    append(client, user_id, [turn.entry for turn in turns])


def time_requests(
    client: Client, conversations: Sequence[Conversation], entries: int
) -> dict[str, Any]:
    """Time searches for all questions, for a user with `entries` entries.

    Also count how many newly appended entries are not found at once.
    """
    from memory.recall.models import SearchSegment

    turns = [turn for one in conversations for turn in one.turns]
    name = f"long-{entries}"
    post(client, name, (turns * (entries // len(turns) + 1))[:entries])
    segments = SearchSegment.objects.filter(user__user_id=name)
    until(lambda: segments.filter(last_seq__gt=entries - SPACE_FOR_TAIL).exists())
    until(lambda: segments.count() <= math.log2(entries))

    seconds = []
    for question in [one for conversation in conversations for one in conversation.questions]:
        started = time.perf_counter()
        answer = client.post(f"users/{name}/search/", {"query": question.text})
        seconds.append(time.perf_counter() - started)
        found = expect(200, answer)
        assert len(found["hits"]) == 10, found
    missed = 0
    for number in range(20):
        word = f"xylophone{number}"
        client.post(f"users/{name}/entries/", {"kind": "message", "content": f"a {word}"})
        hits = client.post(f"users/{name}/search/", {"query": word})[1]["hits"]
        missed += not (hits and word in hits[0]["text"])
    return {**percentiles(seconds), "missed_after_append": missed}


# -- The report --------------------------------------------------------------------------------


def row(name: str, half: str, tally: Tally) -> Row:
    """Return the table's row for one way of searching and one half of the conversations."""
    return {
        "way": name,
        "half": half,
        **{f"evidence_{budget}": tally.evidence(budget) for budget in BUDGETS},
        **{f"per_question_{budget}": tally.per_question(budget) for budget in BUDGETS},
        **{
            f"{category}_{budget}": tally.evidence(budget, number)
            for number, category in CATEGORIES.items()
            for budget in BUDGETS
        },
    }


def figures_of(tallies: dict[str, dict[str, Tally]]) -> dict[str, Any]:
    """Return the figures for all LOCOMO conversations and for those held out."""
    figures: dict[str, Any] = {"minilm_3000": None, "minilm_1500": None}
    for way, halves in tallies.items():
        name = "evidence" if way == "search" else way
        for budget in BUDGETS:
            figures[f"{name}_{budget}"] = halves["both"].evidence(budget)
            if "kept_back" in halves:
                figures[f"{name}_{budget}_kept_back"] = halves["kept_back"].evidence(budget)
    for budget in BUDGETS:
        for suffix in ("", "_kept_back"):
            if f"evidence_{budget}{suffix}" not in figures:
                continue
            gain = figures[f"evidence_{budget}{suffix}"] - figures[f"bm25_{budget}{suffix}"]
            figures[f"above_bm25_{budget}{suffix}"] = round(gain, 1)
    return figures


if __name__ == "__main__":
    main()
