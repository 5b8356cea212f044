"""Source code on the screens: coloured, numbered, marked; it can neither act nor delay a page."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from memory.alerts.models.alerts import Alert, AlertKind
from memory.constraints import constraint_library
from memory.kernel.admin import source
from memory.versions.models.checkpoints import Blob
from memory.versions.models.runs import Run
from tests.integration.admin.conftest import Populate, Rows, page_url, text_of


def words_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def coloured(text: str) -> list[tuple[str, str]]:
    found = re.findall(r'<span class="(\w)">(.*?)</span>', source.block(text))
    return [(kind, html.unescape(words)) for kind, words in found]


@pytest.mark.parametrize(
    "text",
    [
        'x = """a\n\n  # no comment\n"""\ny = 1',
        "'it\\'s' # \"quoted\"",
        'print("unclosed\nnext = 1',
        '"""never closed\n\n',
        "\n\n  \n",
        "name\u00e9 = 'é' \\\n  + b'x'",
        "a\r\nb\rc",
    ],
)
def test_nothing_of_the_text_is_lost(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")

    assert words_of(source.block(text)) == lines


def test_a_token_over_several_lines_is_coloured_in_each() -> None:
    assert source.code_lines('"""a\nb"""') == [
        '<span class="s">&quot;&quot;&quot;a</span>',
        '<span class="s">b&quot;&quot;&quot;</span>',
    ]


def test_control_characters_are_spelled_out_anywhere() -> None:
    shown = source.block('x\u202e = "\u200b<script>" # \U000e0041</pre>\u2066')

    assert not re.search("[\u202e\u200b\u2066\U000e0041]", shown)
    assert "<script>" not in shown
    assert shown.count("</pre>") == 1
    assert words_of(shown) == 'x\\u202e = "\\u200b<script>" # \\U000e0041</pre>\\u2066'


@pytest.mark.parametrize(
    "unit", [" \n", '"', '"""', "'", '"\\\n', "@", "sources=(1,", "(", "\\", 'rb"', "#\n", "1."]
)
def test_no_text_holds_the_page_up(unit: str) -> None:
    # Some lexers take minutes for a quarter of this.
    shown = source.block(unit * (1_000_000 // len(unit)))

    assert "more characters" in shown
    assert len(shown) < 20_000_000


def test_the_sources_of_records_lead_to_entries_and_those_in_texts_do_not() -> None:
    text = 'Trip(key="a", to="sources=(7,)", resources=(9,), sources=(3, 70))'

    assert source.cited(text) == {3, 70}
    shown = source.block(text, entries={3: "/three/", 7: "/seven/", 9: "/nine/"})
    assert re.findall(r'href="([^"]+)"', shown) == ["/three/"]
    assert words_of(shown) == text


CHECK = """def check(today):
    if today:
        yield critical("other words", evidence=[])
    yield critical(
        f"{drug.name} conflicts with the {allergy} allergy", evidence=[])
    yield warning(f"{drug.name} conflicts with the {allergy} allergy", evidence=[])
"""


@pytest.mark.parametrize(
    ("severity", "message", "lines"),
    [
        ("critical", "Amoxicillin conflicts with the penicillin allergy", [[4, 5]]),
        ("critical", "other words", [[3]]),
        ("warning", "A conflicts with the B allergy", [[6]]),
        ("info", "other words", []),
        ("critical", "neither", []),
    ],
)
def test_the_statement_is_found_that_says_what_an_alert_says(
    severity: str, message: str, lines: list[list[int]]
) -> None:
    found = source.matching_statements(CHECK, severity, message)

    assert [list(place) for place in found] == lines


@pytest.mark.parametrize(
    ("name", "severity", "message"),
    [
        ("drug_allergy", "warning", "Amoxicillin conflicts with the allergy to penicillin: mild"),
        ("deadline_window", "info", "Renew the consent form is due on 2026-12-20"),
        ("double_booking", "critical", "Cardiology overlaps Physiotherapy"),
    ],
)
def test_a_statement_that_chooses_its_severity_is_found(
    name: str, severity: str, message: str
) -> None:
    text = constraint_library.read(name).source

    [place] = source.matching_statements(text, severity, message)

    assert text.splitlines()[place[0] - 1].strip().startswith("yield raised(")
    assert source.matching_statements(text.replace("raised(", "critical("), "info", message) == []


def test_no_line_is_found_in_what_is_no_python() -> None:
    assert source.matching_statements("def (", "critical", "x") == []
    assert source.matching_statements("(" * 100_000, "critical", "x") == []


def marked_in(response: Any) -> list[str]:
    found = re.findall(r"<mark>(.*?)</mark>", text_of(response))
    return [words_of(line) for line in found]


@pytest.mark.django_db
def test_an_alert_marks_the_line_that_made_it(admin_client: Client, rows: Rows) -> None:
    response = admin_client.get(page_url(rows[Alert]))

    # In the excerpt at the top, and in the whole source that is folded below it.
    assert marked_in(response) == ["    yield critical('Aspirin')"] * 2
    assert "Raised on line 3 (highlighted)." in text_of(response)
    assert "<summary>Full source</summary>" in text_of(response)


@pytest.mark.django_db
def test_failing_line_is_marked(admin_client: Client, rows: Rows) -> None:
    run, alert = rows[Run], rows[Alert]
    error = {**run.error, "line": 2}
    said = {"path": alert.constraint, "seconds": 0.1, "error": error, "alerts": []}
    Run.objects.filter(pk=run.pk).update(output={"constraints": [said]})
    Alert.objects.filter(pk=alert.pk).update(kind=AlertKind.CONSTRAINT_ERROR)

    response = admin_client.get(page_url(alert))

    assert marked_in(response) == ["def check(today):"] * 2
    assert "Failed on line 2" in text_of(response)


@pytest.mark.django_db
def test_hostile_source_is_coloured_and_inert(admin_client: Client, populate: Populate) -> None:
    blob = populate('"""</pre><script>alert(1)</script>', "carol")[Blob]

    page = text_of(admin_client.get(page_url(blob)))

    assert "<script>alert" not in page
    assert '<span class="k">def</span> <span class="d">check</span>' in page
