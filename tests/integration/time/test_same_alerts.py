"""Users woken by forecasts get the same alerts as users who are checked every day.

Run more with `UAC_EXAMPLES=20 pytest tests/integration/time/test_same_alerts.py`.
"""

import random
import re
from collections.abc import Callable

import pytest
import time_machine
from django.db import transaction
from pytest_django.fixtures import Settings

from memory.alerts.models.alerts import AlertEvent
from memory.kernel.daily_runs import next_daily_run
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.versions.models.runs import Run
from tests.integration.time.test_forecast import DAY, IMPORTS, START, settle
from tests.properties import examples
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]

SEEDS = range(examples(1))
DAYS = 20
CHECK = (
    IMPORTS
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for lease in leases:
        day = lease.ends_on
        left = (day - today).days
        if QUESTION:
            severity = critical if left < N else warning
            yield severity(f"{{left}} days are left", evidence=[lease])
"""
)
# N and M are days of a month; braces are doubled, as in everything passed to `settle`.
QUESTIONS = (
    "0 <= left <= N",
    "left in (N, M, 1)",
    "left < N",
    "abs(left) % 7 == 3",
    "today.day in (N, M)",
    "today.weekday() == N % 7 and left < 60",
    "today + datetime.timedelta(days=N) >= day > today",
    "f'{{today:%d}}' == str(N)",
    "sorted([today, day, datetime.date(2027, 3, N)])[1] == today",
    "(today.year, today.month) == (day.year, day.month)",
    "today.replace(day=N) <= today and left < M",
    "{{today: True}}.get(day - datetime.timedelta(days=N), False)",
    "1 // (today.day - N) > -1 and left < M",
)


def drawn(draw: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    """Constraints by name, and the day on which the lease ends."""
    texts = {}
    for number in range(3):
        text = CHECK.replace("QUESTION", draw.choice(QUESTIONS))
        for letter in "NM":
            text = re.sub(rf"\b{letter}\b", str(draw.randint(1, 28)), text)
        texts[f"home_{number}"] = text
    return texts, {"home": (START + draw.randint(0, 60) * DAY).date().isoformat()}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_happens_on_the_same_days(
    workspace: Workspace, settled: Work, settings: Settings, seed: int
) -> None:
    found = []
    for horizon in (365, 0):
        settings.UAC_FORECAST_DAYS = horizon
        with transaction.atomic():
            found.append(live(workspace, settled, seed))
            transaction.set_rollback(True)

    (told, runs), (told_daily, runs_daily) = found
    assert told == told_daily
    assert runs < runs_daily


def live(workspace: Workspace, settled: Work, seed: int) -> tuple[list[str], int]:
    """Return the events of a user whose state changes now and then, and the number of runs."""
    draw = random.Random(seed)
    zone = draw.choice(["Europe/Berlin", "America/Los_Angeles", "Asia/Tokyo"])
    with time_machine.travel(START - DAY, tick=False):
        user = create_user(workspace, "ada", time_zone=zone, metadata=None)
    at = START
    while at < START + DAYS * DAY:
        with time_machine.travel(at, tick=False):
            if at == START or draw.random() < 0.06:
                settle(user, *drawn(draw))
            if at == START:
                daily = next_daily_run(user, at)
                MemoryUser.objects.filter(pk=user.pk).update(constraints_due_at=daily)
            dispatching.dispatch()
            settled()
        at += DAY / 2
    told = [
        f"{one.at:%m-%d %H} {one.alert.constraint} {one.kind}"
        for one in AlertEvent.objects.filter(alert__user=user).exclude(kind="escalated")
        if one.alert is not None
    ]
    return sorted(told), Run.objects.filter(user=user).count()
