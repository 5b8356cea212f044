"""Check invariants that hold whatever was broken, against the outside world's own records.

The checker reads the database by SQL and imports nothing from the server, so that it does not share
errors with the server's own checks. Each check yields a sentence for every violation.
"""

import ast
import datetime
import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from psycopg import Connection
from psycopg.rows import dict_row

from tests.chaos.journal import CANARY, WORD, Entry, Journal, Person, Sent
from tests.chaos.model import VISIT

Database: TypeAlias = Connection[dict[str, Any]]

# Workspaces with the rule that nobody is paid for buying something.
RULED = ("red", "green")
LIBRARY = Path(__file__).parents[2] / "sandbox_image" / "uac"
HEAD = (
    "SELECT tree FROM memory_checkpoint c JOIN memory_memoryuser u ON u.head_id = c.id"
    " WHERE u.id = %s"
)
RECORD = ("domain", "type", "collection", "key", "data", "retired")
PAYLOAD = ("content", "data", "metadata", "session_id", "role", "speaker", "agent_id", "source",
           "idempotency_key")  # fmt: skip
# Tables without a column user_id, or with a nullable one: how a row (t) leads to the user.
OWNERS = {
    "memory_alertevent": "SELECT coalesce(t.user_id, (SELECT a.user_id FROM memory_alert a"
    " WHERE a.id = t.alert_id))",
    "memory_alertfeedback": "SELECT user_id FROM memory_alert a WHERE a.id = t.alert_id",
    "memory_delivery": "SELECT coalesce(e.user_id, a.user_id) FROM memory_alertevent e"
    " LEFT JOIN memory_alert a ON a.id = e.alert_id WHERE e.id = t.event_id",
    "memory_deliveryattempt": "SELECT coalesce(e.user_id, a.user_id) FROM memory_delivery d"
    " JOIN memory_alertevent e ON e.id = d.event_id"
    " LEFT JOIN memory_alert a ON a.id = e.alert_id WHERE d.id = t.delivery_id",
    "memory_searchblock": "SELECT user_id FROM memory_searchsegment s WHERE s.id = t.segment_id",
    "memory_memoryuser": "SELECT t.id",
}


@dataclass
class Known:
    """The data that one person must have, according to what was acknowledged."""

    person: Person
    entries: dict[int, Entry] = field(default_factory=dict)
    redacted: set[int] = field(default_factory=set)

    def rejected(self, seq: int) -> bool:
        """Return whether the entry is of another class than its collection."""
        return self.entries[seq].get("type") == "Refund"

    def _records(self) -> Iterator[Entry]:
        """Yield the typed entries that are neither redacted nor rejected, in their order."""
        for seq in sorted(self.entries.keys() - self.redacted):
            if self.entries[seq]["kind"] == "record" and not self.rejected(seq):
                yield self.entries[seq]

    def purchases(self) -> dict[str, Entry]:
        """The purchases of the newest version, by key, in the order in which they were added."""
        found: dict[str, Entry] = {}
        for entry in self._records():
            if entry.get("retired"):
                found.pop(entry["key"], None)
            else:
                found[entry["key"]] = entry["data"]
        return found

    def episodes(self) -> Counter[str]:
        """Return how often each purchase's amount has become negative."""
        found: Counter[str] = Counter()
        negative: set[str] = set()
        for entry in self._records():
            key = entry["key"]
            if entry.get("retired") or entry["data"]["cents"] >= 0:
                negative.discard(key)
            elif key not in negative:
                negative.add(key)
                found[key] += 1
        return found


class Checker:
    """One snapshot of the database and the journal, when all work has ended."""

    def __init__(self, database: Database, journal: Journal) -> None:
        self._database = database
        self._journal = journal
        self.counts: Counter[str] = Counter()
        self._known: dict[tuple[str, str], Known] = {}
        for person in journal.people:
            self._known[person.workspace, person.user_id] = Known(person)
        for person, seq, entry in journal.entries():
            name = (person.workspace, person.user_id)
            self._known.setdefault(name, Known(person)).entries[seq] = entry
        for redacted in journal.redacted:
            if redacted.acknowledged:
                name = (redacted.person.workspace, redacted.person.user_id)
                self._known[name].redacted.add(redacted.seq)
        self._users = {
            row["id"]: self._known.get((row["workspace"], row["user_id"]))
            for row in self._rows(
                "SELECT u.id, u.user_id, w.name AS workspace FROM memory_memoryuser u"
                " JOIN memory_workspace w ON w.id = u.workspace_id"
            )
        }

    def violations(self) -> list[str]:
        """Return a sentence for each violation; none if everything is consistent."""
        checks: tuple[Callable[[], Iterable[str]], ...] = (
            lambda: self._journal.problems,
            self._acknowledgements,
            self._logs,
            self._chains,
            self._outcomes,
            self._state,
            self._versions,
            self._runs,
            self._alerts,
            self._events,
            self._webhooks,
            self._calls,
            self._redactions,
            self._strangers,
            self._unfinished,
        )
        return [found for check in checks for found in check()]

    def _rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with self._database.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement, parameters or None).fetchall()

    def _whole(self) -> Iterator[tuple[int, Known]]:
        for pk, known in self._users.items():
            if known is not None:
                yield pk, known

    # -- The log ---------------------------------------------------------------------------------

    def _acknowledgements(self) -> Iterator[str]:
        """Each request must have made one set of entries, in the order of its writer."""
        turns: dict[tuple[Person, int], list[Sent]] = defaultdict(list)
        for sent in self._journal.sent:
            who = f"{_name(sent.person)}, writer {sent.writer}, turn {sent.turn}"
            if not sent.acknowledged:
                yield f"{who}: never acknowledged"
                continue
            first = sent.acknowledged[0]
            self.counts["entries"] += len(first)
            self.counts["repeated requests"] += len(sent.acknowledged) - 1
            if any(again != first for again in sent.acknowledged):
                yield f"{who}: one key, several sets of entries: {sent.acknowledged}"
            if first != list(range(first[0], first[0] + len(sent.entries))):
                yield f"{who}: the entries of one request are {first}"
            turns[sent.person, sent.writer].append(sent)
        for (person, writer), all_sent in turns.items():
            seqs = [sent.acknowledged[0][0] for sent in sorted(all_sent, key=lambda one: one.turn)]
            if writer and seqs != sorted(seqs):
                yield f"{_name(person)}: what writer {writer} said is out of order: {seqs}"

    def _logs(self) -> Iterator[str]:
        """Each log must hold what was acknowledged, unchanged, and nothing else that was sent."""
        by_user: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in self._rows(
            "SELECT user_id, seq, kind, content, data, metadata, session_id, source,"
            " idempotency_key, redacted_at, derived_from FROM memory_logentry"
        ):
            by_user[row["user_id"]][row["seq"]] = row
        logs = {_name(known.person): by_user[pk] for pk, known in self._whole()}
        for known in self._known.values():
            name = _name(known.person)
            log = logs.get(name, {})
            if sorted(log) != list(range(1, len(log) + 1)):
                yield f"{name}: the numbers of the log have gaps"
            for seq, entry in known.entries.items():
                if seq not in log:
                    yield f"{name}: the acknowledged entry {seq} is lost"
                    continue
                row = log[seq]
                if seq in known.redacted:
                    if row["redacted_at"] is None or row["content"] or row["data"]:
                        yield f"{name}: the entry {seq} was redacted and is not"
                elif problem := _changed(entry, row):
                    yield f"{name}: the acknowledged entry {seq} has another {problem}"
            for seq, row in log.items():
                # Skip facts of the model, and what a redaction left of them.
                sent = row["source"] is None or str(row["source"]).startswith("key:")
                ours = row["kind"] == "redaction" or row["derived_from"]
                if seq not in known.entries and sent and not ours:
                    said = {column: value for column, value in row.items() if value is not None}
                    yield f"{name}: an entry was never acknowledged, or is there twice: {said}"

    def _chains(self) -> Iterator[str]:
        """The hashes must form a chain that ends where the user's row says."""
        ends = {
            row["id"]: row
            for row in self._rows("SELECT id, last_seq, last_hash FROM memory_memoryuser")
        }
        chains: dict[int, tuple[int, bytes]] = dict.fromkeys(ends, (0, bytes(32)))
        for row in self._rows("SELECT * FROM memory_logentry ORDER BY user_id, seq"):
            count, previous = chains[row["user_id"]]
            if row["redacted_at"] is None:
                trust = {} if row["trust"] == "user" else {"trust": row["trust"]}
                payload = _canonical({**{name: row[name] for name in PAYLOAD}, **trust})
                if hashlib.sha256(row["salt"] + payload).digest() != row["payload_hash"]:
                    yield f"{self._who(row)}: entry {row['seq']} is not what was hashed"
            line = [previous.hex(), row["seq"], row["kind"], _instant(row["occurred_at"]),
                    _instant(row["recorded_at"]), row["derived_from"],
                    row["payload_hash"].hex()]  # fmt: skip
            if hashlib.sha256(_canonical(line)).digest() != row["hash"]:
                yield f"{self._who(row)}: the chain breaks at entry {row['seq']}"
            chains[row["user_id"]] = count + 1, row["hash"]
        for pk, (count, last) in chains.items():
            if (ends[pk]["last_seq"], ends[pk]["last_hash"]) != (count, last):
                yield f"{self._who({'user_id': pk})}: the chain does not end where the user says"

    def _outcomes(self) -> Iterator[str]:
        """Every entry must have an outcome and a reason, and the counts must add up to the log."""
        outcomes: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in self._rows("SELECT user_id, seq, outcome, reason FROM memory_entryoutcome"):
            if row["seq"] in outcomes[row["user_id"]]:
                yield f"{self._who(row)}: entry {row['seq']} has two outcomes"
            outcomes[row["user_id"]][row["seq"]] = row
        lengths = {
            row["user_id"]: row["length"]
            for row in self._rows(
                "SELECT user_id, count(*) AS length FROM memory_logentry GROUP BY user_id"
            )
        }
        for pk, known in self._whole():
            name, decided = _name(known.person), outcomes[pk]
            if pending := sorted(set(range(1, lengths.get(pk, 0) + 1)) - decided.keys()):
                yield f"{name}: {len(pending)} entries are pending still, {pending[0]} first"
            if len(decided) > lengths.get(pk, 0):
                yield f"{name}: {len(decided)} outcomes of {lengths.get(pk, 0)} entries"
            for seq, row in decided.items():
                self.counts[row["outcome"]] += 1
                if row["outcome"] != "covered" and not row["reason"]:
                    yield f"{name}: entry {seq} is {row['outcome']}, and nobody says why"
                if seq not in known.entries:
                    continue
                expected = self._expected(known, seq)
                if row["outcome"] not in expected:
                    yield (
                        f"{name}: entry {seq} is {row['outcome']} ({row['reason'][:200]}), not"
                        f" {' or '.join(expected)}"
                    )

    def _expected(self, known: Known, seq: int) -> tuple[str, ...]:
        if seq in known.redacted:
            return ("dismissed",)
        if known.entries[seq]["kind"] != "record":  # a model was asked, which may fail on it
            return ("covered", "dismissed", "rejected")
        return ("rejected",) if known.rejected(seq) else ("covered",)

    # -- The project -------------------------------------------------------------------------------

    def _state(self) -> Iterator[str]:
        """The newest version must follow from the log: by key, with every value."""
        for pk, known in self._whole():
            name, records = _name(known.person), records_of(self._files(HEAD, pk, pk))
            found = {one["key"]: {k: one[k] for k in ("what", "cents")}
                     for one in records.get("Purchase", ())}  # fmt: skip
            expected = known.purchases()
            if found != expected:
                differing = sorted(
                    key for key in found.keys() | expected if found.get(key) != expected.get(key)
                )
                yield (
                    f"{name}: {len(differing)} purchases are not as acknowledged; {differing[0]} is"
                    f" {found.get(differing[0])}, not {expected.get(differing[0])}"
                )
            answered = self._journal.answers.get((known.person.workspace, known.person.user_id))
            if answered is not None:
                self.counts["answers"] += 1
                told = _plain(answered["value"])
                due = [len(expected), sum(one["cents"] for one in expected.values())]
                if told != due:
                    yield f"{name}: the query answers {told}, not {due}"
            yield from self._visits(pk, known, records.get("Visit", ()))

    def _visits(self, pk: int, known: Known, records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Each visit that was told must be one record, unless the model has failed on it."""
        places = Counter(one["place"] for one in records)
        rejected = {
            visit[1]
            for row in self._rows(
                "SELECT content FROM memory_logentry e JOIN memory_entryoutcome o"
                " ON o.user_id = e.user_id AND o.seq = e.seq WHERE e.user_id = %s"
                " AND o.outcome = 'rejected'",
                pk,
            )
            if (visit := VISIT.search(row["content"] or ""))
        }
        expected = set()
        for seq, entry in known.entries.items():
            visit = VISIT.search(entry.get("content") or "")
            if visit and seq not in known.redacted:
                expected.add(visit[1])
        for place, count in places.items():
            self.counts["visits"] += count
            if count > 1:
                yield f"{_name(known.person)}: the visit to {place} is there {count} times"
            if place not in expected:
                yield f"{_name(known.person)}: nobody has spoken of a visit to {place}"
        for place in expected - places.keys() - rejected:
            yield f"{_name(known.person)}: the visit to {place} was forgotten"

    def _files(self, tree: str, pk: int, *parameters: Any) -> dict[str, str]:
        """Return the files of a version; none if something in it was redacted."""
        rows = self._rows(tree, *parameters)
        if not rows:
            return {}
        hashes: dict[str, str] = rows[0]["tree"]
        contents = {
            row["hash"]: row["content"]
            for row in self._rows(
                "SELECT hash, content FROM memory_blob WHERE user_id = %s AND hash = ANY(%s)",
                pk,
                list(hashes.values()),
            )
        }
        if any(contents.get(hash_) is None for hash_ in hashes.values()):
            return {}
        return {path: contents[hash_] for path, hash_ in hashes.items()}

    def _versions(self) -> Iterator[str]:
        """Each version must follow the one before, be accepted, and have the hashed files.

        The newest ones are executed, in an interpreter that has nothing else of the server.
        """
        newest: dict[int, int] = defaultdict(int)
        for row in self._rows(
            "SELECT user_id, version, verdict->>'accepted' AS accepted FROM memory_checkpoint"
            " ORDER BY user_id, version"
        ):
            self.counts["versions"] += 1
            if row["version"] != newest[row["user_id"]] + 1:
                yield f"{self._who(row)}: no version before {row['version']}"
            newest[row["user_id"]] = row["version"]
            if row["accepted"] != "true":
                yield f"{self._who(row)}: version {row['version']} did not pass the gate"
        for row in self._rows(
            "SELECT u.id AS user_id, c.version, c.user_id AS owner FROM memory_memoryuser u"
            " JOIN memory_checkpoint c ON c.id = u.head_id"
        ):
            if (row["owner"], row["version"]) != (row["user_id"], newest[row["user_id"]]):
                yield f"{self._who(row)}: the head is not the newest version"
        for row in self._rows(
            "SELECT user_id, hash FROM memory_blob WHERE content IS NOT NULL"
            " AND hash <> encode(sha256(convert_to(content, 'UTF8')), 'hex')"
        ):
            yield f"{self._who(row)}: a file is not what was hashed: {row['hash']}"
        yield from self._execute()

    def _execute(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            for pk, _ in self._whole():
                for path, source in self._files(HEAD, pk, pk).items():
                    file = Path(folder, str(pk), path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(source)
            done = subprocess.run(
                [sys.executable, "-I", "-c", EXECUTE, folder, str(LIBRARY.parent)],
                capture_output=True,
                text=True,
                check=False,
            )
        for line in done.stdout.splitlines():
            user, _, error = line.partition(" ")
            yield f"{self._who({'user_id': int(user)})}: the newest version does not run: {error}"
        if done.returncode:
            yield f"the newest versions could not be run: {done.stderr[-500:]}"

    def _runs(self) -> Iterator[str]:
        """Every constraint run must have found what follows from its version: always the same."""
        for row in self._rows(
            "SELECT user_id, id, checkpoint_id, output FROM memory_run"
            " WHERE kind = 'constraints' AND outcome = 'ok' AND output IS NOT NULL"
            " ORDER BY id LIMIT 300"
        ):
            files = self._files(
                "SELECT tree FROM memory_checkpoint WHERE id = %s",
                row["user_id"],
                row["checkpoint_id"],
            )
            if not files:
                continue
            self.counts["runs checked"] += 1
            expected = sorted(
                (one["key"], f"{one['what']} for {one['cents']} cents")
                for one in records_of(files).get("Purchase", ())
                if one["cents"] < 0
            )
            found = sorted(
                (alert["evidence"][0]["key"], alert["message"])
                for one in row["output"]["constraints"]
                for alert in one["alerts"]
            )
            if row["output"]["constraints"] and found != expected:
                yield f"{self._who(row)}: the run {row['id']} found {found}, not {expected}"

    # -- Alerts ----------------------------------------------------------------------------------

    def _alerts(self) -> Iterator[str]:
        """No alert may be told twice; it must be open if and only if its finding is still found."""
        for row in self._rows(
            "SELECT user_id, fingerprint, count(*) AS count FROM memory_alert"
            " WHERE state <> 'resolved' GROUP BY user_id, fingerprint HAVING count(*) > 1"
        ):
            yield f"{self._who(row)}: {row['count']} live alerts of one fingerprint"
        for row in self._rows(
            "SELECT a.user_id, a.id, count(e.id) AS count FROM memory_alert a LEFT JOIN"
            " memory_alertevent e ON e.alert_id = a.id AND e.kind = 'opened'"
            " GROUP BY a.user_id, a.id HAVING count(e.id) <> 1"
        ):
            yield f"{self._who(row)}: the alert {row['id']} was opened {row['count']} times"
        told: dict[int, Counter[str]] = defaultdict(Counter)
        live: dict[int, Counter[str]] = defaultdict(Counter)
        for row in self._rows("SELECT * FROM memory_alert"):
            self.counts["alerts"] += 1
            alive = row["state"] != "resolved"
            if row["kind"] != "finding":
                if alive:
                    yield f"{self._who(row)}: {row['kind']} is open still: {row['message'][:300]}"
            elif row["evidence"]:
                key = row["evidence"][0]["key"]
                told[row["user_id"]][key] += 1
                live[row["user_id"]][key] += alive
        for pk, known in self._whole():
            name = _name(known.person)
            ruled = known.person.workspace in RULED
            episodes = known.episodes() if ruled else Counter[str]()
            for key, count in told[pk].items():
                if count > episodes[key]:
                    yield f"{name}: {count} alerts about {key}, for {episodes[key]} causes"
            expected = {key for key, one in known.purchases().items() if ruled and one["cents"] < 0}
            found = {key for key, count in live[pk].items() if count}
            if found != expected:
                yield f"{name}: alerts are open about {sorted(found)}, not {sorted(expected)}"

    def _events(self) -> Iterator[str]:
        """The feed must be numbered without a gap, and include what the staff did."""
        last = {
            row["workspace_id"]: row["last_seq"]
            for row in self._rows("SELECT workspace_id, last_seq FROM memory_eventcounter")
        }
        feeds: dict[int, list[int]] = defaultdict(list)
        steps: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self._rows("SELECT * FROM memory_alertevent ORDER BY workspace_id, seq"):
            self.counts["events"] += 1
            feeds[row["workspace_id"]].append(row["seq"])
            steps[str(row["alert_id"])][row["kind"]] += 1
        for workspace in last.keys() | feeds:
            if feeds[workspace] != list(range(1, last.get(workspace, 0) + 1)):
                yield f"the feed of workspace {workspace} is not numbered 1 to {last[workspace]}"
        for workspace, alert in set(self._journal.seen):
            if not steps[alert]["acknowledged"]:
                yield f"{workspace}: the alert {alert} was acknowledged, and nobody knows of it"
        for alert, kinds in steps.items():
            if kinds["acknowledged"] > 1 + kinds["reopened"] + kinds["snoozed"]:
                yield f"the alert {alert} was acknowledged {kinds['acknowledged']} times"

    def _webhooks(self) -> Iterator[str]:
        """Each event must have arrived, and those of one alert first in order."""
        known, arrived = self._journal.owners, defaultdict[str, dict[int, str]](dict)
        for call in self._journal.called:
            data = call.body["data"]
            if strangers := CANARY.findall(json.dumps(call.body)):
                owners = {known.get(canary) for canary in strangers}
                who = (call.workspace, data["user_id"])
                if {(one.workspace, one.user_id) for one in owners if one} != {who}:
                    yield f"a webhook message about {who} tells of {strangers}"
            if call.taken:
                alert = data.get("alert", {}).get("id", "")
                arrived[call.workspace].setdefault(data["event"]["seq"], alert)
        for row in self._rows(
            "SELECT w.name, e.seq, e.kind FROM memory_alertevent e"
            " JOIN memory_workspace w ON w.id = e.workspace_id"
        ):
            self.counts["webhook events"] += 1
            if row["seq"] not in arrived[row["name"]]:
                yield f"{row['name']}: the webhook event {row['seq']} ({row['kind']}) never arrived"
        for workspace, events in arrived.items():
            latest: dict[str, int] = {}
            for seq, alert in events.items():
                if alert and seq < latest.get(alert, 0):
                    yield f"{workspace}: the webhook events of {alert} came out of order: {seq}"
                latest[alert] = seq

    def _calls(self) -> Iterator[str]:
        """Every request that the language model received must be on record."""
        asked = Counter(self._journal.asked)
        on_record = {
            row["user_id"]: row["calls"]
            for row in self._rows(
                "SELECT user_id, count(*) AS calls FROM memory_llmcall GROUP BY 1"
            )
        }
        self.counts["model calls"] += asked.total()
        for pk, known in self._whole():
            got, has = asked[known.person.canary], on_record.get(pk, 0)
            if got > has:
                yield f"{_name(known.person)}: the model was asked {got} times, {has} on record"

    # -- Secrets -----------------------------------------------------------------------------------

    def _redactions(self) -> Iterator[str]:
        """Redacted content must be nowhere in the database."""
        gone = {one.secret: one for one in self._journal.redacted if one.acknowledged}
        self.counts["redacted"] += len(gone)
        for table, _, words in self._words():
            for found in words & gone.keys():
                one = gone[found]
                yield f"{_name(one.person)}: the redacted entry {one.seq} is still in {table}"

    def _strangers(self) -> Iterator[str]:
        """No row of one user may hold a word of another user."""
        owners = self._journal.owners
        for table, pk, words in self._words():
            for canary in words & owners.keys():
                known = self._users.get(pk) if pk is not None else None
                if known is None or known.person is not owners[canary]:
                    yield (
                        f"{table}: a row of {self._who({'user_id': pk})} holds a word of"
                        f" {_name(owners[canary])}"
                    )

    def _words(self) -> Iterator[tuple[str, int | None, set[str]]]:
        """Yield table, user and the canaries and secrets in their rows, bytes included."""
        columns: dict[str, dict[str, str]] = defaultdict(dict)
        for row in self._rows(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'public'"
        ):
            columns[row["table_name"]][row["column_name"]] = row["data_type"]
        for table, types in sorted(columns.items()):
            parts = ["t::text"]
            parts += [f"encode(t.{name}, 'escape')" for name in types if types[name] == "bytea"]
            owner = "NULL::bigint"
            if table in OWNERS:
                owner = f"({OWNERS[table]})"
            elif "user_id" in types:
                owner = "t.user_id"
            text = ", ".join(parts)
            for row in self._rows(
                f"SELECT {owner} AS pk, array_agg(DISTINCT found[1]) AS words FROM {table} t,"
                f" regexp_matches(concat_ws(' ', {text}), '({WORD.pattern})', 'g') AS found"
                " GROUP BY 1"
            ):
                yield table, row["pk"], set(row["words"])

    def _unfinished(self) -> Iterator[str]:
        """No work may be left waiting."""
        for what, statement in WAITING.items():
            (row,) = self._rows(f"SELECT count(*) AS count FROM {statement}")
            if row["count"]:
                yield f"{row['count']} {what}"

    def _who(self, row: Mapping[str, Any]) -> str:
        known = self._users.get(row["user_id"])
        return _name(known.person) if known else f"user {row['user_id']}"


# Work that has to come to an end. Forecasts and the clock's runs recur.
WAITING = {
    "entries are pending": "memory_logentry e WHERE NOT EXISTS (SELECT FROM memory_entryoutcome o"
    " WHERE o.user_id = e.user_id AND o.seq = e.seq)",
    "runs are not done": "memory_run WHERE status <> 'done'",
    "redactions are under way": "memory_redaction WHERE due_at IS NOT NULL",
    "webhook messages wait": "memory_delivery WHERE state = 'pending'",
    "alerts are snoozed": "memory_alert WHERE state = 'snoozed'",
    "users wait for changed constraints": "memory_memoryuser WHERE constraints_changed_at"
    " IS NOT NULL AND head_id IS NOT NULL",
}

# Imports all modules of each project in the folder, one project after the other.
EXECUTE = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[2])
sys.dont_write_bytecode = True
for project in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    sys.path.insert(0, str(project))
    before = set(sys.modules)
    try:
        for file in sorted(project.rglob("*.py")):
            name = ".".join(file.relative_to(project).with_suffix("").parts)
            importlib.import_module(name.removesuffix(".__init__"))
    except BaseException as error:
        print(project.name, repr(error)[:300])
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("domains", "constraints", "tests", "manifest"):
            del sys.modules[name]
    sys.path.remove(str(project))
    importlib.invalidate_caches()
"""


def leaked(logs: Path) -> Iterator[str]:
    """Yield a sentence for each line in the folder that quotes users' texts."""
    for path in sorted(logs.rglob("*")):
        if path.is_file():
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if found := WORD.search(line):
                    yield f"{path.name} line {number} holds {found[0]}: {line[:300]}"


def records_of(files: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Read class → records (field → value) from the state files of a project, shards included."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path, source in files.items():
        if path.startswith("domains/") and not path.endswith(("/schema.py", "/__init__.py")):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    found[node.func.id].append(
                        {
                            word.arg: ast.literal_eval(word.value)
                            for word in node.keywords
                            if word.arg is not None
                        }
                    )
    return found


def _changed(entry: Entry, row: Mapping[str, Any]) -> str:
    """Return the part of an entry that is not as it was sent, if any."""
    record = {name: entry[name] for name in RECORD if name in entry}
    expected = {
        "kind": entry["kind"],
        "content": entry.get("content"),
        "data": record or None,
        "metadata": entry.get("metadata"),
        "session_id": entry.get("session_id"),
        "idempotency_key": entry.get("idempotency_key"),
    }
    return ", ".join(name for name, value in expected.items() if row[name] != value)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _instant(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat(timespec="microseconds")


def _plain(value: Any) -> Any:
    """Return a value in typed JSON as plain JSON: for a tuple, its items."""
    if isinstance(value, dict) and len(value) == 1:
        return _plain(next(iter(value.values())))
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _name(person: Person) -> str:
    return f"{person.workspace}/{person.user_id}"
