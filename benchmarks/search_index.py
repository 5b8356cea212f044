"""Cost of a log's index, for `retrieval`: size, memory, time; and cost of comparing all vectors."""

import time
import tracemalloc

import numpy as np

from benchmarks.harness import until

# The numbers of passages after which the figures are named.
PASSAGES = (10_000, 100_000, 1_000_000)
DIMENSIONS = 256
ROUNDS = 5


def index_figures(user_id: str, question: str) -> dict[str, float]:
    """Return the KiB that a user's index takes for 1,000 entries.

    They are given for the rows, for a process that has searched the index, and for the peak in a
    process that is searching it. Also return how many entries a worker indexes per second, with
    vectors, if it indexes all of them again.
    """
    from django.db.models import Sum
    from django.db.models.functions import Length

    from memory.models import MemoryUser, SearchBlock, SearchSegment
    from memory.recall.search import announcing, index, index_maintenance
    from memory.recall.search.finding import find

    user = MemoryUser.objects.get(user_id=user_id)
    thousands = user.last_seq / 1000
    blocks = SearchBlock.objects.filter(segment__user=user)
    stored = blocks.aggregate(bytes=Sum(Length("data")))["bytes"]
    find(user, question)  # loads the model, once for all users
    kept = index._size(index._cache.of(user.pk))
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
    """Return the time to compare a question with all vectors, by their number.

    It is the part of a search that an approximate index would save. `share` makes the numbers
    smaller.
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
