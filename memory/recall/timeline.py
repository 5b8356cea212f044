"""A timeline of what a log says about a topic: one short line per entry, across its whole history.

For a question about an order or for a summary, the best passages are the wrong context: they are
long, few, and mostly about one moment. So each relevant entry gets one line, cut to the sentences
that matter for the topic; lines that repeat an earlier one are left out, so that first mentions
remain; and they are in order of time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memory.log.models.entries import LogEntry
from memory.recall.cutting import shortened
from memory.recall.packing import MIN_LINE, Line, Packed
from memory.recall.search.words import terms
from memory.recall.tokens import cost_of_line

# What a line costs besides its text: its date, speaker and number.
FRAME = 14.0
TITLE = "Said about this, in order of time"


@dataclass(frozen=True)
class _Mention:
    """What an entry says about the topic: its line, and how relevant it is."""

    entry: LogEntry
    score: float
    text: str
    cited: Sequence[int]


def pack_timeline(
    lines: Sequence[Line], room: float, term_weights: Mapping[str, float], least: float
) -> Packed:
    """Pack the most relevant of these lines of entries into `room` tokens, in order of time.

    Each is cut to `least` tokens, or to more if there are too few lines to fill the room.
    """
    head = ["", f"{TITLE}:"]
    left = room - sum(map(cost_of_line, head))
    length = max(least, left / max(len(lines), 1) - FRAME)
    chosen: list[_Mention] = []
    for mention in sorted(_first_mentions(lines, term_weights, length), key=lambda one: -one.score):
        if left < MIN_LINE:
            break
        if (cost := cost_of_line(mention.text)) <= left:
            chosen.append(mention)
            left -= cost
    if not chosen:
        return Packed(left_out=len(lines), is_whole=not lines)
    chosen.sort(key=lambda one: (one.entry.occurred_at, one.entry.seq))
    return Packed(
        [*head, *(one.text for one in chosen)],
        room - left,
        frozenset(seq for one in chosen for seq in one.cited),
        len(lines) - len(chosen),
        len(chosen) == len(lines),
    )


def _first_mentions(
    lines: Sequence[Line], term_weights: Mapping[str, float], length: float
) -> Iterator[_Mention]:
    """Yield the mentions that say something new, earliest first.

    A message from which a fact was derived is left out: the fact says the same in fewer words.
    """
    derived = {seq for line in lines if line.entry for seq in line.entry.derived_from}
    seen: list[frozenset[str]] = []
    entries = [(line, line.entry) for line in lines if line.entry and line.entry.seq not in derived]
    for line, entry in sorted(entries, key=lambda one: (one[1].occurred_at, one[1].seq)):
        pieces = sorted(line.pieces(), key=lambda one: one[1])
        text = shortened(" ".join(line.read(piece) for _, piece in pieces), term_weights, length)
        words = frozenset(terms(text))
        if any(words <= earlier for earlier in seen):
            continue
        seen.append(words)
        score = max(score for score, _ in pieces)
        yield _Mention(entry, score, line.with_text(text), line.cited)
