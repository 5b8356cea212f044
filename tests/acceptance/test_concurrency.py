"""Eight writers, four sandbox workers, fifty users: every acknowledged entry is processed right."""

from benchmarks import concurrency


def test_many_writers_lose_nothing_and_mix_nothing_up() -> None:
    rows, figures, problems = concurrency.measure(seconds=15)

    # Logs, outcomes, projects and alerts follow exactly from what was acknowledged.
    assert problems == []
    assert figures["problems"] == 0
    assert figures["failed_requests"] == 0
    assert figures["pending"] == 0
    assert [row["users"] for row in rows] == [concurrency.USERS] * len(concurrency.WORKSPACES)
    for row in rows:
        settled = row["covered"] + row["rejected"] + row["pending_messages"]
        assert settled == row["entries"]
        # Every kind of entry was sent, or this would prove little.
        assert row["entries"] > 2 * row["users"]
        assert row["rejected"] > 0
        assert row["pending_messages"] > 0
        assert row["checkpoints"] > row["users"]
