"""A short run of the soak benchmark: mixed work that leaves nothing behind."""

import pytest

from benchmarks.soak import SHARES, soak

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]


def test_mixed_work_leaves_nothing_behind() -> None:
    rows, figures, problems = soak(9)

    assert problems == []
    assert figures["containers"] > 10
    assert {row["work"] for row in rows} == set(SHARES)
    left = {name: value for name, value in figures.items() if name.startswith("leaked")}
    assert left == {"leaked_containers": 0, "leaked_descriptors": 0, "leaked_threads": 0}
