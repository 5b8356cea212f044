"""Real records, if they are available: all of them compile, and none loses anything."""

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from benchmarks.analytical import CLASSES, FILES
from benchmarks.harness import data_file, require_data
from memory.project import Project, RecordEntry, apply, compile_record, render

pytestmark = pytest.mark.skipif(
    not all(map(data_file, FILES)), reason=f"UAC_DATA_DIR does not hold {' and '.join(FILES)}"
)


def cases() -> Iterator[Mapping[str, list[dict[str, Any]]]]:
    """Yield each recorded user's records by domain."""
    analytical, ten_domains = require_data(*FILES)
    with analytical.open() as lines:
        for line in lines:
            case = json.loads(line)
            yield {case["type"]: case["records"]}
    yield json.loads(ten_domains.read_text())["user_state"]


def project_of(case: Mapping[str, list[dict[str, Any]]]) -> Project:
    project = Project.empty()
    seq = 0
    for domain, records in case.items():
        for data in records:
            seq += 1
            entry = RecordEntry(seq, domain, CLASSES[domain], data=data)
            for edit in compile_record(project, entry):
                apply(project, edit)
    return project


def test_every_recorded_record_compiles_and_says_the_same() -> None:
    seen = 0
    for case in cases():
        project = project_of(case)
        back = Project.from_files(render(project))
        assert back == project
        for domain, records in case.items():
            (collection,) = back.outline.domains[domain].collections
            stored = [dict(record.fields) for _, record in back.records(domain, collection)]
            assert [{k: as_json(v) for k, v in fields.items()} for fields in stored] == records
            dates = [field for field in records[0] if field == "date" or field.endswith("_date")]
            assert dates
            assert all(type(fields[name]) is datetime.date for fields in stored for name in dates)
            seen += len(records)
    assert seen > 5_000


def as_json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime.date) else value
