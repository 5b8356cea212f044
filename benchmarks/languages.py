"""Measure how far languages other than English are understood, and what that costs a server.

For each language, a row says how many of the sentences in `tests/unit/language/sentences.py` ground
their true fact and refuse their false one, and how many of the questions about the invented people
of `tests/paraphrases.txt` find, among the first five, the entry that answers them without a word in
common: in the same language, and where the question is in English or the entry is; and of the
people who are kept back, by whom nothing was tuned, `…_kept_back`.

Then two users of one server have 2,000 messages each: those people's, repeated with a number in
each. The first speaks English, the second the other languages. For each, the times of searches over
HTTP, one at a time, the memory (PSS) of the web server and the worker afterwards, and how many of
the messages the model embeds per second, none of which it has met. So the second user's figures of
memory include the first user's model.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from benchmarks.footprint import memory_of
from benchmarks.harness import (
    Client,
    Row,
    append,
    expect,
    new_client,
    parser,
    percentiles,
    report,
    settings_of,
    until_embedded,
)
from deploy.embedded.system import running_system

# The two users, and how the figures call the processes.
ENGLISH, OTHERS = "english", "others"
PROCESSES = {"web": "web", "default-1": "worker"}


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(
        __doc__, entries=(2_000, 1_000), questions=(200, 5), languages=(None, 2)
    ).parse_args()
    figures = costs(asked.entries, asked.questions)  # configures this process as well
    report(
        "languages",
        settings={"entries": asked.entries, "questions": asked.questions},
        rows=list(rows_of(asked.languages)),
        figures=figures,
        path=asked.json,
    )


def costs(entries: int, questions: int) -> dict[str, Any]:
    """Return the figures of a server that has first met English alone, then other languages."""
    figures = {}
    with running_system(sandbox_workers=0) as system:
        settings_of(system)
        client = new_client(system, "languages")
        for name in (ENGLISH, OTHERS):
            for figure, value in cost_of(client, name, entries, questions).items():
                figures[f"{figure}_{name}"] = value
            for row in memory_of(system):
                if process := PROCESSES.get(row["process"]):
                    figures[f"{process}_mib_{name}"] = row["mib"]
    return figures


def cost_of(client: Client, name: str, entries: int, number: int) -> dict[str, Any]:
    """Log the entries of people who speak English, or the other languages, and search them."""
    from tests.paraphrases import TEXT, read_people

    people = [
        one
        for one in read_people(TEXT.read_text())
        if (one.language == "en") == (name == "english")
    ]
    texts = [entry.content for person in people for entry in person.entries if entry.content]
    questions = [question for person in people for question in person.questions]
    expect(201, client.post("users/", {"user_id": name}))
    log = [
        {"kind": "message", "content": f"{texts[place % len(texts)]} ({place})"}
        for place in range(entries)
    ]
    append(client, name, log)
    until_embedded(client, name, questions[0])
    # A model is loaded by the first question in its language.
    search(client, name, questions[0])
    seconds = [search(client, name, question) for question in questions[:number]]
    return {**percentiles(seconds), "embedded_per_second": embedded_per_second(name, log)}


def embedded_per_second(name: str, log: list[dict[str, str]]) -> int:
    """Return how many messages the model of this user's log embeds per second."""
    from memory.recall.search.embeddings.multilingual import MultilingualEmbedder
    from memory.recall.search.embeddings.static import load_wordllama

    model = load_wordllama() if name == ENGLISH else MultilingualEmbedder()
    started = time.perf_counter()
    model.embed([message["content"] for message in log])
    return round(len(log) / (time.perf_counter() - started))


def search(client: Client, user_id: str, question: str) -> float:
    """Search a user's log, and return the seconds that it took."""
    started = time.perf_counter()
    expect(200, client.post(f"users/{user_id}/search/", {"query": question}))
    return time.perf_counter() - started


def rows_of(most: int | None) -> Iterator[Row]:
    """Yield what is understood of each language."""
    from tests.unit.language.sentences import LANGUAGES, is_refused, sentences

    own, across = answers_found(most, kept_back=False)
    own_kept, across_kept = answers_found(most, kept_back=True)
    for language in list(LANGUAGES)[:most]:
        table = list(sentences(language))
        yield {
            "language": language,
            "sentences": len(table),
            "true_refused": sum(is_refused(one.text, one.true) for one in table),
            "false_accepted": sum(not is_refused(one.text, one.false) for one in table),
            "questions": own[language].total() or None,
            "found": percent(own[language]),
            "questions_across": across[language].total() or None,
            "found_across": percent(across[language]),
            "questions_kept_back": own_kept[language].total() or None,
            "found_kept_back": percent(own_kept[language]),
            "questions_across_kept_back": across_kept[language].total() or None,
            "found_across_kept_back": percent(across_kept[language]),
        }


def answers_found(
    most: int | None, *, kept_back: bool
) -> tuple[defaultdict[str, Counter[bool]], defaultdict[str, Counter[bool]]]:
    """Count the questions that find their answer, in each language and across languages."""
    from memory.recall.search.embeddings.multilingual import MultilingualEmbedder
    from memory.recall.search.embeddings.static import load_wordllama
    from tests.paraphrases import TEXT, find_answers, read_people

    own, across = defaultdict[str, Counter[bool]](Counter), defaultdict[str, Counter[bool]](Counter)
    people = {one.name: one for one in read_people(TEXT.read_text(), kept_back=kept_back)}
    static, multilingual = load_wordllama(), MultilingualEmbedder()
    for person in list(people.values())[:most]:
        model = static if person.original is None else multilingual
        own[person.language].update(find_answers(person, person.questions, model))
        if person.original is not None:
            english = people[person.original]
            across[person.language].update(find_answers(person, english.questions, model))
            across[person.language].update(find_answers(english, person.questions, model))
    return own, across


def percent(answers: Counter[bool]) -> float | None:
    """Return the share of answers found, in %."""
    return round(100 * answers[True] / answers.total(), 1) if answers else None


if __name__ == "__main__":
    main()
