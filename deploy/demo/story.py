"""Play the demo's story, stage by stage, through the HTTP API, and check the results."""

import datetime
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from deploy.demo import person, recorded_model
from deploy.demo.calls import Calls
from deploy.demo.person import Entry, ExpectedAlert
from deploy.demo.screen import Screen
from deploy.embedded.http import ApiClient

_PATIENCE_SECONDS = 240
# A real model takes longer and needs more than one call.
_MODEL_PATIENCE_SECONDS = 600
_USER = f"users/{person.USER_ID}/"
# A search must find the expected entry within this many hits.
RECALLED = 5


class ModelStopped(RuntimeError):
    """The language model isn't processing the entries; the message says why."""


@dataclass
class Story:
    """The demo's story, played on a running server.

    `check` raises ProcessFailed if one of the server's processes has died. `calls` returns the
    calls made to each language model. `hurry` makes a model that has failed try again now.
    `problems` collects unexpected results, `besides` collects results caused by somebody else's
    changes, and `runners` the kinds of sandboxes that answered the questions.
    """

    client: ApiClient
    screen: Screen
    check: Callable[[], None]
    calls: Callable[[], list[Calls]]
    hurry: Callable[[], object]
    loaded_on: datetime.date
    problems: list[str] = field(default_factory=list)
    besides: list[str] = field(default_factory=list)
    runners: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Load the sample person, unless an earlier run already did, and show the results.

        Raises ModelStopped if the language model is stopped, UnexpectedAnswer if the server
        responds with an unexpected status, and OSError if the server is down.
        """
        life = person.life(self.loaded_on)
        user = self.client.call("GET", _USER, expect=(200, 404))
        if "structure" in user and user["structure"]["state"] == "stopped":
            self.hurry()  # the cause of a failure may have been fixed since the last run
        if self._is_loaded(user):
            self.screen.stage(f"{person.NAME} has been remembered since {self.loaded_on}")
            self._settle()
        else:
            self._load(life)
        alone = "entries" not in user
        self._compare_alerts(alone=alone)
        self._ask(life, alone=alone)
        self._recall(alone=alone)
        self._show_manifest()
        self._show_calls()

    @property
    def recorded(self) -> bool:
        """True if only recorded responses were used, and no real language model was called."""
        answered = {one.model for one in self.calls() if one.calls > one.failed}
        return answered <= {recorded_model.NAME}

    def _is_loaded(self, user: dict[str, Any]) -> bool:
        """Return whether the last conversation has been sent and every constraint written."""
        return "entries" in user and bool(
            self._entries(f"session_id={person.WORKSHOP}") and not self._missing_constraints()
        )

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
        self._settle()
        self._print_facts("kind=fact")

        day = life.lease[0]["occurred_at"][:10]
        self.screen.stage(f"A conversation from {day}, in plain words")
        self._converse(life.lease)

        self.screen.stage("Two constraints, Python with tests, pass the gate")
        for constraint in self._missing_constraints():
            self._write_constraint(constraint)
        self._wait_for_constraints()
        alerts = len(self._alerts())
        self.screen.line(
            f"constraints run  {f'{alerts} alerts' if alerts else 'nothing to report yet'}"
        )

        self.screen.stage("A doctor prescribes Amoxicillin; nobody asks whether that is all right")
        self._log([life.prescription])
        self._show_alert("drug_allergy")

        self.screen.stage("A trip to Bangkok is booked; nobody mentions the passport")
        self._log([life.booking])
        self._show_alert("passport_validity")

        self.screen.stage("Yesterday's conversation; nobody mentions when to cancel the lease")
        self._converse(life.workshop)
        self._show_alert_of_conversations()

    def _log(self, entries: list[Entry]) -> None:
        answer = self.client.call(
            "POST", f"{_USER}entries/?wait=20", {"entries": entries}, expect=(202,)
        )
        seqs = [entry["seq"] for entry in answer["entries"]]
        numbers = f"entries {seqs[0]} to {seqs[-1]}" if len(seqs) > 1 else f"entry {seqs[0]}"
        head = self.client.call("GET", _USER)["head"]
        self.screen.line(
            f"logged           {numbers} ({entries[0]['occurred_at'][:10]} to "
            f"{entries[-1]['occurred_at'][:10]})"
        )
        if answer["covered"]:
            self.screen.line(
                f"checkpoint {head:<5} typed Python from {_number(answer['covered'], 'entry')}"
                " accepted"
            )
        if left := sum(entry["state"] == "pending" for entry in answer["entries"]):
            self.screen.line(f"{'':<16} {_number(left, 'message')} left for the language model")
        for entry in answer["entries"]:
            if entry["state"] == "rejected":
                self._problem(f"entry {entry['seq']} was rejected: {entry['reason']}")

    def _settle(self) -> None:
        """Wait until all entries are settled, and show the log's state."""
        self._wait_until_settled()
        counts = self.client.call("GET", _USER)["entries"]
        self.screen.line(
            f"log              {counts['total']} entries: {counts['covered']} covered, "
            f"{counts['dismissed']} dismissed, {counts['rejected']} rejected, "
            f"{counts['pending']} pending"
        )

    def _wait_until_settled(self) -> None:
        """Wait until all entries, and all facts found in them, have been settled.

        Raises ModelStopped if the language model isn't processing them.
        """

        def settled(entries: list[dict[str, Any]]) -> bool:
            waiting = {entry["kind"] for entry in entries if entry["state"] == "pending"}
            # Read the state after the entries: facts may have been added in the meantime.
            standing = self.client.call("GET", _USER)["structure"]
            if standing["state"] == "stopped" and waiting - {"record"}:
                raise ModelStopped(f"the language model is stopped: {standing['reason']}")
            return not waiting and standing["state"] in ("idle", "stopped")

        for entry in self._wait(
            "all of the demo's entries to be settled",
            self._demo_entries,
            settled,
            seconds=_MODEL_PATIENCE_SECONDS,
        ):
            if entry["state"] == "rejected":
                self._problem(f"entry {entry['seq']} was rejected: {entry['reason']}")

    def _demo_entries(self) -> list[dict[str, Any]]:
        """Return only the entries that the demo logged and those derived from them."""
        entries = self._entries("")
        ours = {one["seq"] for one in entries if person.is_told(one["idempotency_key"])}
        return [one for one in entries if one["seq"] in ours or ours & {*one["derived_from"]}]

    def _converse(self, messages: list[Entry]) -> None:
        """Send plain messages and show what a language model makes of them."""
        before = self.client.call("GET", _USER)["head"] or 0
        answer = self.client.call("POST", f"{_USER}entries/", {"entries": messages}, expect=(202,))
        for entry in answer["entries"]:
            self._print_entry(f"message {entry['seq']}", f"{entry['role']}: {entry['content']}")
        self._wait_until_settled()
        session = messages[0]["session_id"]
        self._print_facts(f"kind=fact&session_id={session}")
        for version in range(before + 1, self.client.call("GET", _USER)["head"] + 1):
            self._print_edits(self.client.call("GET", f"{_USER}checkpoints/{version}/"))

    def _print_facts(self, which: str) -> None:
        for fact in self._entries(which):
            origin = ", ".join(map(str, fact["derived_from"]))
            self._print_entry(f"fact {fact['seq']}", f"{fact['content']} (from {origin})")

    def _print_edits(self, checkpoint: dict[str, Any]) -> None:
        """Show what a version changed, and what the gate verified."""
        for edit in checkpoint["edits"]:
            sources = ", ".join(map(str, edit.get("sources", [])))
            match edit["op"]:
                case "add" | "update":
                    what = edit.get("class_name") or edit["collection"]
                    fields = person.fields_in_words(edit["fields"])
                    text = f"{what} {edit.get('key', '')}: {fields} (from {sources})"
                    self._print_entry("record" if edit["op"] == "add" else "record changed", text)
                case "note":
                    self._print_entry("note", f"{edit['text']} (from {sources})")
                case "write_constraint":
                    self._print_entry("constraint", f"{edit['name']} (from {sources})")
                    for line in edit["source"].splitlines():
                        self.screen.line(f"  | {line}")
        checks = ", ".join(checkpoint["accepted_checks"])
        self._print_entry(f"checkpoint {checkpoint['version']}", f"accepted by the gate: {checks}")

    def _print_entry(self, label: str, text: str) -> None:
        self.screen.line(textwrap.fill(f"{label:<16} {text}", 92, subsequent_indent=" " * 17))

    def _entries(self, which: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.client.call(
            "GET", f"{_USER}entries/?page_size=500&{which}"
        )["results"]
        return entries

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
        if "accepted" not in decision:  # not decided in time, so the response describes the run
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
        return [alert for alert in self._alerts_of_all_time() if alert["state"] != "resolved"]

    def _alerts_of_all_time(self) -> list[dict[str, Any]]:
        alerts: list[dict[str, Any]] = self.client.call("GET", f"{_USER}alerts/?page_size=500")[
            "results"
        ]
        return alerts

    def _show_alert(self, constraint: str) -> None:
        """Wait for an alert from this constraint, and show it with all its evidence."""

        def of_constraint() -> list[dict[str, Any]]:
            alerts = self._alerts_of_all_time()  # somebody may have resolved it in the meantime
            return [alert for alert in alerts if _constraint_of(alert) == constraint]

        for alert in self._wait(f"the alert from {constraint}", of_constraint, bool):
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
            self._print_entry(f"  log entry {seq}", person.described(entry))
            for origin in entry["derived_from"]:
                message = self.client.call("GET", f"{_USER}entries/{origin}/")
                self._print_entry(f"    message {origin}", person.described(message))
        self._warn(alert)

    def _show_alert_of_conversations(self) -> None:
        """Wait for an alert with evidence from both conversations, and show it."""
        for alert in self._wait(
            "an alert with evidence from both conversations",
            lambda: list(filter(self._cites_both, self._alerts_of_all_time())),
            bool,
        ):
            self._print_alert(alert)

    def _cites_both(self, alert: dict[str, Any]) -> bool:
        entries = [self.client.call("GET", f"{_USER}entries/{seq}/") for seq in alert["entries"]]
        return {person.LEASE, person.WORKSHOP} <= {entry["session_id"] for entry in entries}

    def _compare_alerts(self, *, alone: bool) -> None:
        """Show the alerts and compare them with the expected ones.

        `alone` is set if nobody else could have changed them. Otherwise, a visitor may have added
        constraints, or acknowledged or resolved alerts, which is fine.
        """
        self.screen.stage("All alerts that are not resolved")
        today = datetime.datetime.now(ZoneInfo(person.TIME_ZONE)).date()
        expected = person.findings(self.loaded_on, today)
        # There is no telling in advance what a real model will make of the conversations.
        names = {constraint.name for constraint in person.constraints()}
        typed = {finding for finding in expected if finding.constraint in names}
        wants_model = not self.recorded and typed != expected
        exact = alone and self.recorded
        needed = expected if self.recorded else typed
        look = self._alerts if alone else self._alerts_of_all_time

        def as_expected(alerts: list[dict[str, Any]]) -> bool:
            findings = {_finding(alert) for alert in alerts}
            if exact:
                return findings == expected
            return needed <= findings and (not wants_model or any(map(self._cites_both, alerts)))

        alerts = self._wait("the expected alerts", look, as_expected, required=False)

        live = [alert for alert in alerts if alert["state"] != "resolved"]
        for alert in live:
            state = "" if alert["state"] == "open" else f" ({alert['state']})"
            self.screen.alert(alert["severity"], f"{alert['message']}{state}")
            self._warn(alert)
        came, live_findings = ({_finding(alert) for alert in some} for some in (alerts, live))
        for finding in needed - came:
            self._problem(f"missing: {_in_words(finding)}")
        for finding in (needed & came) - live_findings:
            self._besides(f"resolved: {_in_words(finding)}")
        if self.recorded:
            for finding in live_findings - expected:
                if alone:
                    self._problem(f"not expected: {_in_words(finding)}")
                else:
                    self._besides(_in_words(finding))
        elif wants_model and not any(map(self._cites_both, alerts)):
            self._problem("missing: an alert with evidence from both conversations")

    def _show_calls(self) -> None:
        self.screen.stage("Language model usage")
        for calls in self.calls():
            self.screen.line(str(calls))
            if calls.failed:
                why = calls.last_error
                if recorded_model.LIMIT in why:
                    why = recorded_model.LIMIT
                self._print_entry("  last error", textwrap.shorten(why, 300))
        if self.recorded:
            self.screen.line("(its answers are recordings; tokens are estimated from their length)")

    def _ask(self, life: person.Life, *, alone: bool) -> None:
        """Ask the questions and compare the answers with those computed from the demo's entries.

        `alone` is set if the log has no other entries.
        """
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
                if alone:
                    self._problem(
                        f"{question.text!r} was answered {value}; the entries say {question.answer}"
                    )
                else:
                    self.screen.good(f"  {_plain(value)}")
                    self._besides(
                        "an answer changed by somebody else; the demo's own entries give"
                        f" {_plain(question.answer)}"
                    )
            else:
                self.screen.good(f"  {_plain(value)}")
                self.screen.line("  (the same as computed from the log entries without the server)")
            self._warn(answer)
            self.screen.line("")

    def _recall(self, *, alone: bool) -> None:
        """Search with words that no entry uses; `alone` is set if all entries are the demo's."""
        self.screen.stage("Three searches, by meaning: no word from the question is in the answer")
        for one in person.recalled():
            answer = self.client.call(
                "POST", f"{_USER}search/", {"query": one.text, "top_k": RECALLED}, expect=(200,)
            )
            self.screen.line(one.text)
            for hit in answer["hits"]:
                if hit["text"].startswith(one.begins):
                    self.screen.good(textwrap.shorten(f"  entry {hit['seq']}: {hit['text']}", 80))
                    break
            else:
                report = self._problem if alone else self._besides
                report(f"{one.text!r} did not find {one.begins!r}")

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
        seconds: float | None = None,
    ) -> Any:
        """Call `look` until its result satisfies `enough`; return the last result.

        If `required` is set, a timeout is recorded as a problem.
        """
        seconds = _PATIENCE_SECONDS if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while not enough(seen := look()):
            self.check()
            if time.monotonic() > deadline:
                if required:
                    self._problem(f"gave up after waiting {seconds:g} s for {what}")
                break
            time.sleep(0.2)
        return seen

    def _warn(self, result: dict[str, Any]) -> None:
        """Print the server's warning, if any, about the sandbox that computed a result."""
        if warning := result.get("warning"):
            self.screen.line(f"  WARNING        {warning}")

    def _besides(self, text: str) -> None:
        self.besides.append(text)
        self._print_entry("besides:", text)

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.screen.bad(text)


def _constraint_of(alert: dict[str, Any]) -> str:
    return str(alert["constraint"]).removeprefix("constraints/").removesuffix(".py")


def _finding(alert: dict[str, Any]) -> ExpectedAlert:
    return ExpectedAlert(
        constraint=_constraint_of(alert),
        severity=alert["severity"],
        evidence=frozenset(record["key"] for record in alert["evidence"]),
    )


def _number(count: int, word: str) -> str:
    if count != 1:
        word = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word}"


def _in_words(finding: ExpectedAlert) -> str:
    return (
        f"{finding.severity} alert from {finding.constraint} "
        f"on {', '.join(sorted(finding.evidence)) or 'no record'}"
    )


def _plain(value: Any) -> str:
    """Return typed JSON as a person would write it."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        return str(next(iter(value.values())))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items())
    return str(value)
