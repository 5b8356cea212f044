"""`make plots`: draw the benchmarks' results, and write the result tables in the documents.

Nothing is measured here. The results are `benchmarks/results/*.json`, as written by
`make bench NAME=… JSON=…`. The plots go to `docs/plots/`, in a light and a dark version, and the
tables go between their markers in README.md and docs/benchmarks.md. Every number in a picture is
also in its `aria-label`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PLOTS = ROOT / "docs" / "plots"
# All benchmarks whose results are reported, and those that appear in each document's table.
BENCHMARKS = ("aggregates", "sandbox", "retrieval", "remember", "alerts", "footprint")
DOCUMENTS = {
    ROOT / "README.md": ("aggregates", "retrieval", "remember", "footprint"),
    ROOT / "docs" / "benchmarks.md": BENCHMARKS,
}
CAPPED = "state written anew, 30,000 characters"
_TABLE = re.compile(r"(<!-- measured: make plots -->\n).*?(<!-- /measured -->)", re.DOTALL)


@dataclass(frozen=True)
class Theme:
    """The colours for a light or dark page."""

    text: str
    faint: str
    ours: str
    others: str


THEMES = {
    "light": Theme(text="#1f2328", faint="#59636e", ours="#0969da", others="#c4ccd6"),
    "dark": Theme(text="#e6edf3", faint="#9198a1", ours="#4493f8", others="#4a525d"),
}


@dataclass(frozen=True)
class Bar:
    """A bar: a measured number, its label, and whether it is ours (UaC's)."""

    label: str
    value: float
    text: str
    ours: bool = False


@dataclass(frozen=True)
class Panel:
    """A group of comparable bars; `better` says whether higher or lower numbers are better."""

    title: str
    better: str
    bars: Sequence[Bar]
    log: bool = False


def result(name: str) -> Any:
    """Read the result of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def rows(name: str, key: str) -> dict[str, Any]:
    """Read the rows of a benchmark's result, keyed by one of their columns."""
    return {row[key]: row for row in result(name)["rows"]}


def bars_of(
    ways: Sequence[tuple[str, str]], values: Mapping[str, float], text: Callable[[float], str]
) -> list[Bar]:
    """Return a bar for each label and the name of its value; labels of our own begin with UaC."""
    return [
        Bar(label, values[name], text(values[name]), label.startswith("UaC"))
        for label, name in ways
    ]


def aggregates() -> Panel:
    """Return the panel on how many aggregate questions are answered exactly."""
    figures = result("aggregates")["figures"]
    ways = (
        ("UaC: code over the state", "uac"),
        ("mem0’s 100 best, perfect reader", "mem0_100"),
        ("mem0’s 20 best, perfect reader", "mem0_20"),
    )
    return Panel(
        "Aggregate questions answered exactly",
        "more is better",
        bars_of(ways, figures, lambda correct: f"{correct} of {figures['questions']}"),
    )


def sandboxes() -> Panel:
    """Return the panel on how long it takes to run a user's code."""
    measured = {name: row["p50 ms"] for name, row in rows("sandbox", "variant").items()}
    ways = (
        ("UaC, the same user again", "resident"),
        ("UaC, a fresh container", "fresh, bytecode"),
        ("docker exec, shared", "docker exec"),
        ("llm-sandbox, its pool", "llm-sandbox"),
        ("docker run", "docker run"),
    )
    return Panel(
        "Running a user’s rules in a container",
        "median, log scale; less is better",
        bars_of(ways, measured, _ms),
        log=True,
    )


def remembering() -> Panel:
    """Return the panel on how many tokens a language model needs to remember a conversation."""
    figures = result("remember")["figures"]
    kept = round(rows("remember", "what")[CAPPED]["facts_kept_percent"])
    ways = (
        ("UaC, facts alone", "uac_facts_tokens"),
        ("mem0, facts alone", "mem0_tokens"),
        ("UaC, facts and typed state", "uac_tokens"),
        (f"state anew, keeps {kept} %", "capped_tokens"),
        ("state anew, keeps all", "anew_tokens"),
    )
    return Panel(
        "Tokens to remember a long conversation",
        "in and out; less is better",
        bars_of(ways, figures, _thousands),
    )


def retrieval() -> Panel:
    """Return the panel on how much of the evidence each search finds."""
    figures = result("retrieval")["figures"]
    ways = (
        ("UaC search", "evidence_3000"),
        ("BM25, 300-word chunks", "bm25_3000"),
        ("MiniLM, 300-word chunks", "minilm_3000"),
        ("PostgreSQL ts_rank", "ts_rank_3000"),
    )
    return Panel(
        "Evidence found within 3,000 words (LOCOMO)",
        "more is better",
        bars_of(ways, figures, lambda share: f"{share} %"),
    )


def alerting() -> Panel:
    """Return the panel on where the time goes between an entry and the webhook for its alert."""
    parts = rows("alerts", "part")
    shown = (
        ("the append is answered", "append (the request)"),
        ("to a worker; edits, commit", "to the worker, edits, commit"),
        ("gate: state and policy", "gate: check the state, policy"),
        ("gate: compile in a sandbox", "gate: compile in a sandbox"),
        ("gate: load in a sandbox", "gate: load in a sandbox"),
        ("to a worker again", "to the worker again"),
        ("constraints: load", "constraints: load in a sandbox"),
        ("constraints: run", "constraints: run"),
        ("the alert is written", "alert written"),
        ("all, until the webhook is read", "append to webhook"),
    )
    return Panel(
        "From an entry to the webhook of its alert",
        "median, in Docker sandboxes",
        [
            Bar(label, ms := parts[part]["docker p50"], _ms(ms), part == "append to webhook")
            for label, part in shown
        ],
    )


def footprint() -> Panel:
    """Return the panel on how much memory idle processes use."""
    measured = result("footprint")
    figures = measured["figures"]
    bars = [
        Bar(row["process"], row["mib"], f"{row['mib']:.0f} MiB", True) for row in measured["rows"]
    ]
    bars.append(Bar("mem0 (a library)", figures["mem0_mib"], f"{figures['mem0_mib']} MiB"))
    return Panel("Memory at rest", f"all of UaC: {figures['uac_mib']} MiB", bars)


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def _thousands(value: float) -> str:
    return f"{value / 1000:,.0f}k"


PICTURES: Mapping[str, Sequence[Callable[[], Panel]]] = {
    "overview": (aggregates, sandboxes, remembering, retrieval),
    "alerts": (alerting,),
    "footprint": (footprint,),
}


def pictures() -> dict[str, list[Panel]]:
    """Return the panels of each picture, keyed by its name."""
    return {name: [panel() for panel in panels] for name, panels in PICTURES.items()}


def label(panels: Sequence[Panel]) -> str:
    """Return the text that describes a picture for its `aria-label`."""
    return " ".join(
        f"{panel.title} ({panel.better}): "
        + "; ".join(f"{' '.join(bar.label.split())}: {bar.text}" for bar in panel.bars)
        + "."
        for panel in panels
    )


def draw(panels: Sequence[Panel], theme: Theme) -> str:
    """Return a picture as SVG; the same numbers always give the same file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "uac",
        "font.family": ["sans-serif"],
        "font.size": 10.5,
        "text.color": theme.text,
    }
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    most = max(len(panel.bars) for panel in panels)
    width = 5.8 if columns > 1 else 8.0
    with mpl.rc_context(settings):
        figure = Figure(
            figsize=(width * columns, lines * (0.85 + 0.34 * most)), layout="constrained"
        )
        figure.get_layout_engine().set(w_pad=0.2, h_pad=0.08)  # type: ignore[union-attr, call-arg]
        for part, panel in zip(
            figure.subfigures(lines, columns, squeeze=False).flat, panels, strict=False
        ):
            part.suptitle(panel.title, x=0.02, ha="left", fontsize=12.5, fontweight="bold")
            _bars(part.subplots(), panel, most, theme)
        written = StringIO()
        figure.savefig(
            written, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label(panels))}" ', 1)


def _bars(axes: Any, panel: Panel, most: int, theme: Theme) -> None:
    labels = [bar.label for bar in panel.bars]
    colours = [theme.ours if bar.ours else theme.others for bar in panel.bars]
    drawn = axes.barh(labels, [bar.value for bar in panel.bars], color=colours, height=0.64)
    axes.bar_label(drawn, [bar.text for bar in panel.bars], padding=5, fontweight="bold")
    axes.set_ylim(most - 0.4, -0.5)  # all panels' bars are equally thick, with the first on top
    axes.margins(x=0.28)
    if panel.log:
        axes.set_xscale("log")
        axes.set_xlim(left=1, right=max(bar.value for bar in panel.bars) * 8)
    axes.xaxis.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=theme.text)
    axes.set_title(panel.better, loc="left", fontsize=9.5, color=theme.faint, pad=4)


def _lines(benchmarks: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the table's rows: what was measured, UaC's result, and the results of others."""
    if "aggregates" in benchmarks:
        counted = result("aggregates")["figures"]
        yield (
            f"{counted['questions']} aggregate questions, answered exactly",
            f"**{counted['uac']}**",
            "mem0 with a reader that never errs: "
            f"{counted['mem0_20']} (20 memories, its default), {counted['mem0_100']} (100)",
        )
    if "sandbox" in benchmarks:
        sandbox = {name: _ms(row["p50 ms"]) for name, row in rows("sandbox", "variant").items()}
        yield (
            "constraints over 500 records in an isolated container (median)",
            f"**{sandbox['resident']}** resident project, "
            f"**{sandbox['fresh, bytecode']}** fresh container",
            f"`docker exec` {sandbox['docker exec']}, llm-sandbox's pool {sandbox['llm-sandbox']}, "
            f"`docker run` {sandbox['docker run']}",
        )
    if "retrieval" in benchmarks:
        found = result("retrieval")["figures"]
        yield (
            "evidence found within 3,000 words of search results (LOCOMO)",
            f"**{found['evidence_3000']} %**",
            f"BM25 {found['bm25_3000']} %, MiniLM {found['minilm_3000']} %, "
            f"`ts_rank` {found['ts_rank_3000']} %",
        )
    if "remember" in benchmarks:
        remembered, told = result("remember")["figures"], rows("remember", "what")
        yield (
            "model tokens for a conversation of 19 sessions",
            f"facts **{_thousands(remembered['uac_facts_tokens'])}**, "
            f"with typed state {_thousands(remembered['uac_tokens'])}",
            f"mem0: facts {_thousands(remembered['mem0_tokens'])}; rewriting the whole state "
            f"{_thousands(remembered['anew_tokens'])}, or "
            f"{_thousands(remembered['capped_tokens'])} under a cap that keeps "
            f"{told[CAPPED]['facts_kept_percent']} % of the facts",
        )
        yield (
            "one session: the caller waits; all is remembered (without the model's time)",
            f"**{told['UaC']['answered_ms']} ms**; {told['UaC']['remembered_ms']} ms",
            f"mem0: {told['mem0']['answered_ms']} ms; **{told['mem0']['remembered_ms']} ms**",
        )
    if "alerts" in benchmarks:
        alert = result("alerts")["figures"]
        yield (
            "from an entry to the webhook of its alert (median)",
            _ms(alert["append_to_webhook_ms_p50"]),
            "none of them raises alerts",
        )
    if "footprint" in benchmarks:
        size = result("footprint")["figures"]
        yield (
            "memory at rest",
            f"{size['uac_mib']} MiB, all processes",
            f"mem0, a library without a server: **{size['mem0_mib']} MiB**",
        )


def table(benchmarks: Sequence[str]) -> str:
    """Return the table with the results of these benchmarks, as Markdown."""
    lines = [("measured", "UaC", "others"), ("---", "---", "---"), *_lines(benchmarks)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def write_pictures() -> None:
    """Write all pictures and the tables in all documents."""
    PLOTS.mkdir(exist_ok=True)
    for name, panels in pictures().items():
        for theme, colours in THEMES.items():
            (PLOTS / f"{name}-{theme}.svg").write_text(draw(panels, colours))
    for document, benchmarks in DOCUMENTS.items():
        marked = rf"\g<1>{table(benchmarks)}\g<2>"
        document.write_text(_TABLE.sub(marked, document.read_text()))


if __name__ == "__main__":
    write_pictures()
