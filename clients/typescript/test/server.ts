/** Remember, compute and be alerted, on the server of `UAC_URL` and `UAC_KEY`. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, problems, record } from "../src/index.js";

const RULE = `import datetime
from collections.abc import Iterator

from uac import Alert, warning

from domains.work.state import tasks


def check(today: datetime.date) -> Iterator[Alert]:
    """A task must not be late."""
    for task in tasks:
        if task.days > 0:
            yield warning(f"{task.name} is {task.days} days late", evidence=[task])
`;
const TESTS = `import datetime

from uac.testing import run_check

from constraints import late
from domains.work.schema import Task

TODAY = datetime.date(2026, 1, 1)


def test_it_fires() -> None:
    assert len(run_check(late, today=TODAY, tasks=[Task(key="a", name="a", days=3)])) == 1


def test_it_does_not_fire() -> None:
    assert run_check(late, today=TODAY, tasks=[Task(key="a", name="a", days=0)]) == []
`;

test("what is added is queried, found, and alerted while it is streamed", async () => {
  const client = new Client();
  const ada = client.user("typescript");
  await client.users.create({ user_id: "typescript", time_zone: "Europe/Paris" });
  const report = record("work", "Task", { name: "report", days: 0 }, { key: "report" });

  await ada.add([report, "The report is for Grace."], { wait: 60 });

  const answer = await ada.query("[task.name for task in tasks]");
  assert.deepEqual(answer.value, ["report"]);
  const tasks = await ada.records<{ name: string; days: number }>("work.tasks").all();
  assert.equal(tasks[0]?.fields.days, 0);
  assert.ok((await ada.search("Grace", { top_k: 3 })).hits.some((hit) => hit.text?.includes("Grace")));
  await assert.rejects(ada.constraints.put("late", { source: "x = (", tests: "" }), (error) => {
    assert(error instanceof problems.GateRefused || error instanceof problems.InvalidFields);
    return true;
  });
  await ada.constraints.put("late", { source: RULE, tests: TESTS });
  const stop = AbortSignal.timeout(120_000);
  const alerts = ada.alerts.stream({ after: "0", signal: stop });
  await ada.add(record("work", "Task", { days: 3 }, { key: "report" }));
  const alert = (await alerts.next()).value;
  assert.equal(alert?.message, "report is 3 days late");
  await ada.alerts.acknowledge(String(alert?.id));
  const [acknowledged] = await ada.alerts.list({ state: "acknowledged" }).all();
  assert.equal(acknowledged?.id, alert?.id);
});
