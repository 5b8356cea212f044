"""What the demo tells, stage by stage, over the HTTP API; and whether it came out as it should."""

import datetime
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from uac_site.demo import person
from uac_site.demo.client import Client
from uac_site.demo.person import Entry, Finding
from uac_site.demo.screen import Screen

_PATIENCE_SECONDS = 90
_USER = f"users/{person.USER_ID}/"


@dataclass
class Story:
    """The telling of it: `check` raises if a process of the server has died meanwhile.

    `problems` collects what did not come out as it should, `runners` the kinds of sandboxes that
    the questions were answered in.
    """

    client: Client
    screen: Screen
    check: Callable[[], None]
    loaded_on: datetime.date
    problems: list[str] = field(default_factory=list)
    runners: set[str] = field(default_factory=set)

    def tell(self) -> None:
        """Load the person, unless it was done before, and show what came of it."""
        life = person.life(self.loaded_on)
        if self._is_loaded(life):
            self.screen.stage(f"{person.NAME} is remembered since {self.loaded_on}")
            self._settle(life)
        else:
            self._load(life)
        self._compare_alerts()
        self._ask(life)
        self._show_manifest()

    def _is_loaded(self, life: person.Life) -> bool:
        user = self.client.call("GET", _USER, expect=(200, 404))
        if "entries" not in user or user["entries"]["total"] < len(life.entries):
            return False
        return not self._missing_constraints()

    def _load(self, life: person.Life) -> None:
        self.client.call(
            "POST",
            "users/",
            {"user_id": person.USER_ID, "time_zone": person.TIME_ZONE},
            expect=(201, 409),
        )
        self.screen.stage(f"{person.NAME}, half a year of her life as log entries")
        for start in range(0, len(life.months), 30):
            self._log(life.months[start : start + 30])
        self._settle(life)

        self.screen.stage("Two constraints, Python with tests, pass the gate")
        for constraint in self._missing_constraints():
            self._write_constraint(constraint)
        self._wait_for_constraints()
        self.screen.line("constraints run  nothing to report yet")

        self.screen.stage("A doctor prescribes Amoxicillin; nobody asks whether that is all right")
        self._log([life.prescription])
        self._show_alert("drug_allergy")

        self.screen.stage("A trip to Bangkok is booked; nobody mentions the passport")
        self._log([life.booking])
        self._show_alert("passport_validity")

    def _log(self, entries: list[Entry]) -> None:
        answer = self.client.call(
            "POST", f"{_USER}entries/?wait=20", {"entries": entries}, expect=(202,)
        )
        seqs = [entry["seq"] for entry in answer["entries"]]
        numbers = f"{seqs[0]} to {seqs[-1]}" if len(seqs) > 1 else str(seqs[0])
        head = self.client.call("GET", _USER)["head"]
        self.screen.line(
            f"logged           entries {numbers} ({entries[0]['occurred_at'][:10]} to "
            f"{entries[-1]['occurred_at'][:10]})"
        )
        if answer["checkpointed"]:
            self.screen.line(
                f"checkpoint {head:<5} typed Python of {answer['checkpointed']} entries accepted"
            )
        for entry in answer["entries"]:
            if entry["state"] == "rejected":
                self._problem(f"entry {entry['seq']} was rejected: {entry['reason']}")

    def _settle(self, life: person.Life) -> None:
        """Wait until every typed entry is settled; messages stay pending without a model."""
        counts = self._wait(
            "typed entries to be settled",
            lambda: self.client.call("GET", _USER)["entries"],
            lambda counts: counts["pending"] <= life.messages,
        )
        self.screen.line(
            f"log              {counts['total']} entries: {counts['covered']} covered, "
            f"{counts['rejected']} rejected, {counts['pending']} pending"
        )
        self.screen.line(
            f"                 (the {counts['pending']} pending are messages: they wait, since no "
            "language model is configured)"
        )
        if counts["rejected"] or counts["pending"] != life.messages:
            self._problem(f"the log's entries should all be covered but messages: {counts}")

    def _missing_constraints(self) -> list[person.Constraint]:
        listed = self.client.call("GET", f"{_USER}constraints/")["results"]
        names = {constraint["name"] for constraint in listed}
        return [constraint for constraint in person.constraints() if constraint.name not in names]

    def _write_constraint(self, constraint: person.Constraint) -> None:
        decision = self.client.call(
            "PUT",
            f"{_USER}constraints/{constraint.name}/?wait=30",
            {"source": constraint.source, "tests": constraint.tests},
            expect=(200, 202, 422),
        )
        if "accepted" not in decision:  # not decided in time: it answered with the run
            run = self._wait(
                f"the gate to decide on {constraint.name}",
                lambda: self.client.call("GET", f"runs/{decision['id']}/"),
                lambda run: run["status"] == "done",
            )
            decision = {
                **(run["output"] or {}),
                "accepted": run["outcome"] == "ok",
                "error": run["error"],
            }
        if not decision["accepted"]:
            self._problem(
                f"constraint {constraint.name} was refused: {decision.get('verdict')} "
                f"{decision.get('error')}"
            )
            return
        self.screen.line(f"checkpoint {decision['version']:<5} {constraint.name} accepted")

    def _wait_for_constraints(self) -> None:
        head = self.client.call("GET", _USER)["head"]
        self._wait(
            f"the constraints to run on checkpoint {head}",
            lambda: self.client.call("GET", f"{_USER}runs/?kind=constraints&status=done"),
            lambda runs: any(run["checkpoint"] == head for run in runs["results"]),
        )

    def _alerts(self) -> list[dict[str, Any]]:
        alerts = self.client.call("GET", f"{_USER}alerts/")["results"]
        return [alert for alert in alerts if alert["state"] != "resolved"]

    def _show_alert(self, constraint: str) -> None:
        """Wait for the alert of a constraint, and show it with all that it rests on."""

        def of_constraint() -> list[dict[str, Any]]:
            return [alert for alert in self._alerts() if _constraint_of(alert) == constraint]

        for alert in self._wait(f"the alert of {constraint}", of_constraint, bool):
            self._print_alert(alert)

    def _print_alert(self, alert: dict[str, Any]) -> None:
        self.screen.alert(alert["severity"], alert["message"])
        self.screen.line(f"  constraint     {alert['constraint']}")
        for record in alert["evidence"]:
            self.screen.line(
                f"  evidence       {record['class']} {record['key']!r} "
                f"in {record['domain']}.{record['collection']}"
            )
        for seq in alert["entries"]:
            entry = self.client.call("GET", f"{_USER}entries/{seq}/")
            text = f"  log entry {seq:<4} {person.described(entry)}"
            self.screen.line(textwrap.fill(text, 92, subsequent_indent=" " * 17))
        self._warn(alert)

    def _compare_alerts(self) -> None:
        self.screen.stage("All open alerts")
        today = datetime.datetime.now(ZoneInfo(person.TIME_ZONE)).date()
        expected = person.findings(self.loaded_on, today)

        alerts = self._wait(
            "exactly the expected alerts",
            self._alerts,
            lambda alerts: {_finding(alert) for alert in alerts} == expected,
            required=False,
        )

        for alert in alerts:
            self.screen.alert(alert["severity"], alert["message"])
            self._warn(alert)
        found = {_finding(alert) for alert in alerts}
        for finding in expected - found:
            self._problem(f"missing: {_in_words(finding)}")
        for finding in found - expected:
            self._problem(f"not expected: {_in_words(finding)}")

    def _ask(self, life: person.Life) -> None:
        self.screen.stage("Three questions, answered by running Python over the state")
        for question in person.questions(life):
            self.screen.line(question.text)
            for line in question.code.splitlines():
                self.screen.line(f"  >>> {line}")
            answer = self.client.call(
                "POST",
                f"{_USER}query/?wait=30",
                {"code": question.code},
                expect=(200, 202, 422),
            )
            value = answer.get("value")
            self.runners.add(str(answer.get("runner")))
            if answer.get("outcome") != "ok":
                self._problem(f"no answer to {question.text!r}: {answer}")
            elif value != question.answer:
                self._problem(
                    f"{question.text!r} was answered {value}; the entries say {question.answer}"
                )
            else:
                self.screen.good(f"  {_plain(value)}")
                self.screen.line("  (the same as computed from the log entries without the server)")
            self._warn(answer)
            self.screen.line("")

    def _show_manifest(self) -> None:
        manifest = self.client.call("GET", f"{_USER}manifest/")
        self.screen.stage(
            f"The manifest: what an agent always has in its prompt (version {manifest['version']})"
        )
        for line in manifest["text"].splitlines():
            self.screen.line(line)

    def _wait(
        self,
        what: str,
        look: Callable[[], Any],
        enough: Callable[[Any], bool],
        *,
        required: bool = True,
    ) -> Any:
        """Poll until `enough`; returns the last look. If time runs out that is a problem."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not enough(seen := look()):
            self.check()
            if time.monotonic() > deadline:
                if required:
                    self._problem(f"waited {_PATIENCE_SECONDS} s in vain for {what}")
                break
            time.sleep(0.2)
        return seen

    def _warn(self, result: dict[str, Any]) -> None:
        """Print what the server says of the sandbox of a result, if anything."""
        if warning := result.get("warning"):
            self.screen.line(f"  WARNING        {warning}")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.screen.bad(text)


def _constraint_of(alert: dict[str, Any]) -> str:
    return str(alert["constraint"]).removeprefix("constraints/").removesuffix(".py")


def _finding(alert: dict[str, Any]) -> Finding:
    return Finding(
        constraint=_constraint_of(alert),
        severity=alert["severity"],
        evidence=frozenset(record["key"] for record in alert["evidence"]),
    )


def _in_words(finding: Finding) -> str:
    return (
        f"{finding.severity} alert of {finding.constraint} "
        f"on {', '.join(sorted(finding.evidence)) or 'no record'}"
    )


def _plain(value: Any) -> str:
    """Return typed JSON as a person would write it."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        return str(next(iter(value.values())))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items())
    return str(value)
