"""Measure for `retrieval` what a log's search index costs, and how long comparing vectors takes."""

import time
import tracemalloc

import numpy as np

from benchmarks.harness import until

# The numbers of passages to compare with; each is a part of its figure's name.
PASSAGES = (10_000, 100_000, 1_000_000)
DIMENSIONS = 256
ROUNDS = 5


def index_figures(user_id: str, question: str) -> dict[str, float]:
    """Return what a user's search index costs in space and time.

    The space is in KiB per 1,000 entries: in the database's rows, in the memory of a process that
    has searched the index, and at the peak of a search. The time is how many entries per second a
    worker indexes, including their vectors, when it rebuilds the whole index.
    """
    from django.db.models import Sum
    from django.db.models.functions import Length

    from memory.kernel.models.users import MemoryUser
    from memory.recall.models import SearchBlock, SearchSegment
    from memory.recall.search import announcing, index, index_maintenance
    from memory.recall.search.finding import find

    user = MemoryUser.objects.get(user_id=user_id)
    thousands = user.last_seq / 1000
    blocks = SearchBlock.objects.filter(segment__user=user)
    stored = blocks.aggregate(bytes=Sum(Length("data")))["bytes"]
    find(user, question)  # loads the embedding model, once for all users
    kept = index._size(index._cache.get(user.pk))
    tracemalloc.start()
    find(user, question)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    segments = SearchSegment.objects.filter(user=user)
    last = max(segments.values_list("last_seq", flat=True))
    index_maintenance._remove(list(segments.values_list("pk", flat=True)))
    started = time.perf_counter()
    announcing.want(user.pk, user.workspace_id)
    until(lambda: segments.filter(last_seq__gte=last).exists(), seconds=600)
    seconds = time.perf_counter() - started
    return {
        "index_kib_per_1000": round(stored / 1024 / thousands, 1),
        "kept_kib_per_1000": round(kept / 1024 / thousands, 1),
        "searching_kib_per_1000": round(most / 1024 / thousands, 1),
        "indexed_per_second": round(last / seconds),
    }


def compare_figures(share: float = 1.0) -> dict[str, float]:
    """Return how long it takes to compare a question with all vectors, for each of PASSAGES.

    An approximate index would save this part of a search. The numbers of passages are multiplied by
    `share`.
    """
    from memory.recall.search.vectors import Vectors

    random = np.random.default_rng(7)
    question = random.standard_normal(DIMENSIONS).astype(np.float32)
    figures = {}
    for passages in PASSAGES:
        number = int(passages * share)
        values = random.integers(-127, 128, (number, DIMENSIONS), np.int8)
        held = Vectors("random", values, np.ones(number, np.float32))
        seconds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            held.closeness(question)
            seconds.append(time.perf_counter() - started)
        figures[f"compare_ms_{passages}"] = round(1000 * min(seconds), 1)
    return figures
