"""Packing lines into a budget of tokens: what matters most first, cut in whole sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memory.log.models.entries import LogEntry, Trust
from memory.recall.cutting import in_sentences, shortened
from memory.recall.search.documents import text_of
from memory.recall.search.excerpts import GAP, SHORT_GAP, read_passage
from memory.recall.search.passages import Passage
from memory.recall.tokens import cost_of_line, tokens_of_words

# A line cites only the newest MAX_CITED entries.
MAX_CITED = 8
# A piece that doesn't fit is shortened if there is room for at least WORTH_IT tokens, and otherwise
# left out. After MAX_MISSED such pieces, or with less room than any line takes, so is the rest.
WORTH_IT = 25
MAX_MISSED = 20
MIN_LINE = 8
# The maximum size of a single piece: so many tokens or, if this is more, a part of the budget.
MAX_PIECE, PIECE_SHARE = 300, 0.25


@dataclass(frozen=True)
class Line:
    """A line of a context: its text, after `about`, and the entries that it cites.

    Of a long entry, only the passages that were found are of interest: `passages` are these with
    their scores. If `is_one` is set, the text is taken or left as a whole.
    `trust` is the class of what the line rests on.
    """

    about: str
    text: str = ""
    cited: Sequence[int] = ()
    entry: LogEntry | None = None
    passages: Sequence[tuple[float, Passage]] = ()
    is_one: bool = False
    trust: Trust = Trust.USER

    def with_text(self, text: str) -> str:
        """Return the line with this text, ending with the numbers of the cited entries."""
        line = " ".join(f"{self.about} {text}".split())
        if not self.cited:
            return f"- {line}"
        newest = sorted(self.cited)[-MAX_CITED:]
        more = len(self.cited) - len(newest)
        sources = ", ".join(map(str, newest)) + (f" and {more} more" if more else "")
        return f"- {line} [{sources}]"

    def pieces(self) -> Iterator[tuple[float, Passage]]:
        """Yield the bounds of the line's pieces with their scores: its whole text, or passages."""
        if self.entry is None:
            yield 0.0, (0, len(self.text))
            return
        if [passage for _, passage in self.passages] == [(0, len(text_of(self.entry)))]:
            yield self.passages[0]
            return
        bounds = in_sentences(text_of(self.entry), [passage for _, passage in self.passages])
        for (score, _), passage in zip(self.passages, bounds, strict=True):
            yield score, passage

    def read(self, piece: Passage) -> str:
        """Return the text of a piece."""
        return self.text if self.entry is None else read_passage(self.entry, piece)


@dataclass(frozen=True)
class Packed:
    """The lines that fit, their tokens and the entries they cite, and what was left out.

    `left_out` is the number of lines of which nothing fits; `is_whole` says whether every piece of
    every line does.
    """

    lines: Sequence[str] = ()
    tokens: float = 0.0
    cited: frozenset[int] = frozenset()
    left_out: int = 0
    is_whole: bool = True


def pack(
    title: str, lines: Sequence[Line], room: float, term_weights: Mapping[str, float]
) -> Packed:
    """Pack as much as possible of these lines, under a title, into `room` tokens.

    Pieces with the highest scores are packed first, and otherwise in the order of the lines. A
    piece that is too large is cut to the sentences that matter for the question's terms.
    """
    head = ["", f"{title}:"]
    left = room - sum(map(cost_of_line, head))
    pieces = [
        (score, index, piece) for index, line in enumerate(lines) for score, piece in line.pieces()
    ]
    chosen: dict[int, list[tuple[Passage, str]]] = {}
    missed, is_whole = 0, True
    for _, index, piece in sorted(pieces, key=lambda one: -one[0]):
        if left < MIN_LINE or missed == MAX_MISSED:
            is_whole = False
            break
        frame = 0.0 if index in chosen else cost_of_line(lines[index].with_text(""))
        line, most = lines[index], left - frame
        if not line.is_one:
            most = min(most, max(MAX_PIECE, room * PIECE_SHARE))
        text = line.read(piece)
        cost = tokens_of_words(text)
        if cost > most:
            is_whole = False
            text = (
                shortened(text, term_weights, most) if most >= WORTH_IT and not line.is_one else ""
            )
            cost = tokens_of_words(text)
            if not text:
                missed += 1
                continue
        chosen.setdefault(index, []).append((piece, text))
        left -= frame + cost
    texts = [lines[index].with_text(_joined(of_line)) for index, of_line in chosen.items()]
    tokens = [cost_of_line(one) for one in (*head, *texts)]
    while texts and sum(tokens) > room:  # estimates for pieces don't add up exactly
        texts.pop()
        tokens.pop()
    kept = list(chosen)[: len(texts)]
    if not texts:
        return Packed(left_out=len(lines), is_whole=not lines)
    return Packed(
        [*head, *texts],
        sum(tokens),
        frozenset(seq for index in kept for seq in lines[index].cited),
        len(lines) - len(kept),
        is_whole and len(kept) == len(lines),
    )


def _joined(pieces: Sequence[tuple[Passage, str]]) -> str:
    """Return pieces of a text in order, with a mark between those that are not adjacent."""
    text, last = "", 0
    for (start, end), piece in sorted(pieces):
        if text:
            text = text.rstrip() + (" " if start - last <= SHORT_GAP else GAP)
        text, last = text + piece, end
    return text


def share_out(
    groups: Mapping[str, tuple[str, Sequence[Line]]],
    shares: Mapping[str, float],
    room: float,
    term_weights: Mapping[str, float],
    reserved: Mapping[str, float],
) -> dict[str, Packed]:
    """Pack groups of lines, each with its title, into their shares of the room.

    A group's reserved tokens are added to its share. What a group leaves goes to the others.
    """
    free = room - sum(reserved.values())
    whole = sum(shares[name] for name, (_, lines) in groups.items() if lines)
    packed = {
        name: pack(
            title, lines, reserved.get(name, 0.0) + free * shares[name] / whole, term_weights
        )
        if lines
        else Packed()
        for name, (title, lines) in groups.items()
    }
    hungry = [name for name, one in packed.items() if not one.is_whole]
    for index, name in enumerate(hungry):
        rest = room - sum(one.tokens for one in packed.values())
        if rest < WORTH_IT:
            break
        share = shares[name] / sum(shares[one] for one in hungry[index:])
        title, lines = groups[name]
        packed[name] = pack(title, lines, packed[name].tokens + rest * share, term_weights)
    return packed
