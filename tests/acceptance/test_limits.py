"""A limit that the staff set for one workspace takes effect on a running server."""

import itertools

import pytest

from deploy.embedded.system import System
from memory.project.errors import REMEDY
from tests.system import Person, create_person, new_client, record
from tests.waiting import polled

_numbers = itertools.count()

# Takes half a second or more, which does not exceed anybody else's limit.
BUSY = {"code": "sum(range(2 * 10 ** 7))"}
# Never ends: a busy machine may notice the limit a little late.
ENDLESS = {"code": "sum(range(10 ** 12))"}


@pytest.mark.parametrize("single_use", [False, True])
def test_a_workspaces_own_limit_holds_from_the_next_question_on(
    system: System, person: Person, single_use: bool
) -> None:
    def choose(value: float | None) -> None:
        system.manage(
            "shell",
            "-c",
            "from memory.kernel.models.workspaces import Workspace\n"
            f"workspace = Workspace.objects.get(name='limited {single_use}')\n"
            f"workspace.wall_seconds, workspace.single_use = {value}, {single_use}\n"
            "workspace.full_clean()\nworkspace.save()",
        )

    ordinary, limited = person, create_person(new_client(system, f"limited {single_use}"))
    choose(0.1)
    for one in (limited, ordinary):
        one.log(record("Trip", "a", domain="travel", to="Rome"))

    answer = limited.post("query/?wait=100", ENDLESS, status=422)
    assert answer["outcome"] == "timeout"
    assert answer["error"]["message"] == f"took longer than 0.1 s ({REMEDY})"
    assert ordinary.post("query/?wait=100", BUSY, status=200)["outcome"] == "ok"

    def number_of_trips() -> object:
        # Different code each time, or it would be answered without a sandbox.
        code = f"len(trips)  # {next(_numbers)}"
        return limited.client.post("users/ada/query/?wait=100", {"code": code})[1].get("value")

    # A busy machine may hold up that, too, for a tenth of a second, but not always.
    polled(number_of_trips, lambda number: number == 1)

    choose(None)
    assert limited.post("query/?wait=100", BUSY, status=200)["outcome"] == "ok"
