"""Eight writers, four sandbox workers, fifty users: every acknowledged entry is processed right."""

import time
from collections import Counter

from tests.concurrent_writers import USERS, WORKSPACES, new_traffic
from tests.system import running_system


def test_many_writers_lose_nothing_and_mix_nothing_up() -> None:
    with running_system(sandbox_workers=4) as system:
        traffic = new_traffic(system)
        with traffic.flowing():
            time.sleep(15)
        traffic.settle()

        # Logs, outcomes, projects and alerts follow exactly from what was acknowledged.
        assert traffic.problems() == []
        assert traffic.failures.total() == 0
        assert system.manage("verify").rstrip().endswith(" 0 problems")
        system.check()
        for workspace in WORKSPACES:
            details = [user.get() for user in traffic.users if user.workspace == workspace]
            counts: Counter[str] = Counter()
            for detail in details:
                counts.update(detail["entries"])
            # Every kind of entry was sent, or this would prove little.
            assert len(details) == USERS
            assert counts["total"] > 2 * USERS
            assert counts["rejected"] > 0
            assert counts["pending"] > 0
            assert sum(detail["head"] for detail in details) > USERS
