"""Play the demo's story, stage by stage, through the HTTP API."""

import datetime
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deploy.demo import person
from deploy.demo.person import Entry
from deploy.demo.screen import Screen
from deploy.embedded.http import ApiClient
from memory.project.paths import constraint_name

_PATIENCE_SECONDS = 240
# A real model takes longer and needs more than one call.
_MODEL_PATIENCE_SECONDS = 600
_USER = f"users/{person.USER_ID}/"
# A search must find its entry within this many hits.
RECALLED = 5


class ModelStopped(RuntimeError):
    """The language model isn't processing the entries; the message says why."""


@dataclass
class Story:
    """The demo's story, played on a running server.

    `check` raises ProcessFailed if one of the server's processes has died. `hurry` makes a model
    that has failed try again now. `problems` collects what did not come, and `runners` the kinds of
    sandboxes that answered the questions.
    """

    client: ApiClient
    screen: Screen
    check: Callable[[], None]
    hurry: Callable[[], object]
    loaded_on: datetime.date
    problems: list[str] = field(default_factory=list)
    runners: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Load the sample person, unless an earlier run already did, and show what is known.

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
        self._show_alerts()
        self._ask()
        self._search()
        self._show_manifest()

    def _is_loaded(self, user: dict[str, Any]) -> bool:
        """Return whether every constraint is written and the story's last alert has come."""
        return (
            "entries" in user
            and not self._missing_constraints()
            and any(map(self._cites_both, self._alerts()))
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
        self.screen.line(f"constraints run  {_number(len(self._live_alerts()), 'alert')}")

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
        ours = {one["seq"] for one in entries if person.is_logged_by_demo(one["idempotency_key"])}
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

    def _live_alerts(self) -> list[dict[str, Any]]:
        return [alert for alert in self._alerts() if alert["state"] != "resolved"]

    def _alerts(self) -> list[dict[str, Any]]:
        alerts: list[dict[str, Any]] = self.client.call("GET", f"{_USER}alerts/?page_size=500")[
            "results"
        ]
        return alerts

    def _show_alert(self, constraint: str) -> None:
        """Wait for an alert from this constraint, and show it with all its evidence."""

        def of_constraint() -> list[dict[str, Any]]:
            alerts = self._alerts()  # somebody may have resolved it in the meantime
            return [alert for alert in alerts if constraint_name(alert["constraint"]) == constraint]

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
            lambda: list(filter(self._cites_both, self._alerts())),
            bool,
        ):
            self._print_alert(alert)

    def _cites_both(self, alert: dict[str, Any]) -> bool:
        entries = [self.client.call("GET", f"{_USER}entries/{seq}/") for seq in alert["entries"]]
        return {person.LEASE, person.WORKSHOP} <= {entry["session_id"] for entry in entries}

    def _show_alerts(self) -> None:
        self.screen.stage("All alerts that are not resolved")
        for alert in self._live_alerts():
            state = "" if alert["state"] == "open" else f" ({alert['state']})"
            self.screen.alert(alert["severity"], f"{alert['message']}{state}")
            self._warn(alert)

    def _ask(self) -> None:
        self.screen.stage("Three questions, answered by running Python over the state")
        for question, code in person.QUESTIONS.items():
            self.screen.line(question)
            for line in code.splitlines():
                self.screen.line(f"  >>> {line}")
            answer = self.client.call(
                "POST", f"{_USER}query/?wait=30", {"code": code}, expect=(200, 202, 422)
            )
            self.runners.add(str(answer.get("runner")))
            if answer.get("outcome") == "ok":
                self.screen.good(f"  {_plain(answer['value'])}")
            else:
                self._problem(f"no answer to {question!r}: {answer}")
            self._warn(answer)
            self.screen.line("")

    def _search(self) -> None:
        self.screen.stage("Three searches, by meaning: no word from the question is in the answer")
        for question, begins in person.SEARCHES.items():
            answer = self.client.call(
                "POST", f"{_USER}search/", {"query": question, "top_k": RECALLED}, expect=(200,)
            )
            self.screen.line(question)
            hit = next((hit for hit in answer["hits"] if hit["text"].startswith(begins)), None)
            if hit is None:
                self._problem(f"{question!r} did not find {begins!r}")
            else:
                self.screen.good(textwrap.shorten(f"  entry {hit['seq']}: {hit['text']}", 80))

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
        seconds: float | None = None,
    ) -> Any:
        """Call `look` until its result satisfies `enough`, or time is up; return the last result.

        A timeout is recorded as a problem.
        """
        seconds = _PATIENCE_SECONDS if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while not enough(seen := look()):
            self.check()
            if time.monotonic() > deadline:
                self._problem(f"gave up after waiting {seconds:g} s for {what}")
                break
            time.sleep(0.2)
        return seen

    def _warn(self, result: dict[str, Any]) -> None:
        """Print the server's warning, if any, about the sandbox that computed a result."""
        if warning := result.get("warning"):
            self.screen.line(f"  WARNING        {warning}")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.screen.bad(text)


def _number(count: int, word: str) -> str:
    if count != 1:
        word = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word}"


def _plain(value: Any) -> str:
    """Return typed JSON as a person would write it."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        return str(next(iter(value.values())))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items())
    return str(value)
