"""The pictures of the benchmarks show the content of the result files."""

import html
import json
import re
from pathlib import Path

import pytest

from benchmarks import plots

NAMES = list(plots.pictures())


@pytest.mark.parametrize("theme", list(plots.THEMES))
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_has_the_numbers_that_were_measured(name: str, theme: str) -> None:
    svg = (plots.PLOTS / f"{name}-{theme}.svg").read_text()
    panels = plots.pictures()[name]

    written = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
    shown = [bar.text for panel in panels for bar in panel.bars]
    assert sorted(text for text in written if text in shown) == sorted(shown), "make plots"
    assert f'aria-label="{html.escape(plots.label(panels))}"' in svg, "make plots"


def test_another_number_gives_another_picture() -> None:
    theme = plots.THEMES["light"]
    one, other = (
        plots.draw([plots.Panel("A", "more", [plots.Bar("x", value, str(value))])], theme)
        for value in (1, 2)
    )

    assert one != other
    assert ">1</text>" in one
    assert ">2</text>" in other


@pytest.mark.parametrize(
    ("row", "figure"),
    [
        ("median search with 2,000 messages", "p50_ms"),
        ("messages embedded per second", "embedded_per_second"),
        ("memory of the web server", "web_mib"),
        ("memory of the worker", "worker_mib"),
    ],
)
def test_the_table_of_languages_has_the_numbers_that_were_measured(row: str, figure: str) -> None:
    figures = json.loads((plots.RESULTS / "languages.json").read_text())["figures"]
    text = (plots.PLOTS.parent / "benchmarks.md").read_text()
    _, english, _, others = re.findall(r"\| ([\d,]+)", text.partition(f"| {row} ")[2])[:4]

    measured = [figures[f"{figure}_{name}"] for name in ("english", "others")]
    assert [english, others] == [f"{value:,.0f}" for value in measured]


@pytest.mark.parametrize("path", sorted(plots.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_result_says_when_where_and_how_it_was_measured(path: Path) -> None:
    result = json.loads(path.read_text())

    assert result["command"].startswith(f"make bench NAME={path.stem}")
    assert "--quick" not in result["command"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert result["machine"]["cpus"] >= 1
    assert result["machine"]["load"] >= 0
