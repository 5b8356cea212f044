"""Rendered code passes the policy, and means in the sandbox what the project means."""

import json

from memory.project import render
from memory.project.typed import encode
from tests.integration.sandbox.conftest import NOW, value_of
from tests.unit.project.examples import rich_project
from workers.policy.checks import check_policy
from workers.sandbox.client import Sandbox


def test_a_project_that_uses_everything(sandbox: Sandbox) -> None:
    project = rich_project()
    files = render(project)
    assert [finding for path in files for finding in check_policy(path, files[path])] == []

    sandbox.load(files)

    change, dump = project.change(), sandbox.dump()
    assert change.expected
    for path in change.expected:
        domain = change.outline.domains[path.split("/")[1]]
        expected = {
            collection: [encode(record, domain) for record in records]
            for collection, records in change.records_in(path).items()
            if records
        }
        seen = {name: found for name, found in dump.records[path].items() if found}
        assert json.dumps(seen, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert [result.error for result in sandbox.run_tests().results] == [None, None]
    (constraint,) = sandbox.run_constraints(now=NOW, time_zone="UTC").results
    assert (constraint.error, len(constraint.alerts)) == (None, 1)


def test_a_reference_finds_the_class_of_its_own_domain(sandbox: Sandbox) -> None:
    sandbox.load(render(rich_project()))  # both domains have a Passport "p-1"
    code = "[type(trips[0].passport.get()).__module__, type(trips[0].own.get()).__module__]"
    found = value_of(sandbox, code)
    assert found == ["domains.identity.schema", "domains.travel.schema"]
