"""The demo's output when it continues after somebody has acted on its alerts."""

import datetime
from dataclasses import dataclass, field
from typing import Any

import pytest

from deploy.demo import person, story
from deploy.demo.screen import Screen
from deploy.demo.story import Story
from deploy.embedded.http import ApiClient


def alert(constraint: str, state: str, *entries: int) -> dict[str, Any]:
    return {
        "constraint": f"constraints/{constraint}.py",
        "severity": "critical",
        "message": "Amoxicillin is a penicillin",
        "state": state,
        "evidence": [],
        "entries": list(entries),
    }


@dataclass(frozen=True)
class Recorded(ApiClient):
    """Answers as a server would, without one."""

    answers: dict[str, Any] = field(default_factory=dict)

    def call(
        self, method: str, path: str, body: object = None, *, expect: tuple[int, ...] = (200,)
    ) -> Any:
        return self.answers[path.removeprefix(f"users/{person.USER_ID}/")]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a story about a server with these alerts, with short timeouts."""
    monkeypatch.setattr(story, "_PATIENCE_SECONDS", 0)

    def of(*alerts: dict[str, Any]) -> Story:
        entries = {
            f"entries/{number}/": {
                "session_id": session,
                "occurred_at": "2026-01-01",
                "kind": "message",
                "content": "I read the lease.",
                "derived_from": [],
            }
            for number, session in ((1, person.LEASE), (2, person.WORKSHOP))
        }
        return Story(
            client=Recorded("", "", {"alerts/?page_size=500": {"results": alerts}, **entries}),
            screen=Screen(),
            check=lambda: None,
            calls=list,
            hurry=lambda: None,
            loaded_on=datetime.date(2026, 1, 1),
        )

    return of


@pytest.mark.parametrize("state", ["open", "acknowledged", "snoozed", "resolved"])
def test_an_alert_that_somebody_acted_on_has_come_all_the_same(told: Any, state: str) -> None:
    again = told(alert("drug_allergy", state), alert("notice_period", state, 1, 2))

    again._show_alert("drug_allergy")
    again._show_alert_of_conversations()

    assert again.problems == []


def test_an_alert_that_has_not_come_is_missing(told: Any) -> None:
    first = told()

    first._show_alert("drug_allergy")

    assert first.problems == ["gave up after waiting 0 s for the alert from drug_allergy"]
