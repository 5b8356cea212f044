"""Processing a user's text takes at most linear time, since other users' work waits meanwhile.

The interpreter does one thing at a time: a second spent on one text is taken from everybody whom
the process serves.
"""

import datetime
import gc
import itertools
import sys
import threading
import time
from collections.abc import Callable

import pytest

from memory.kernel import texts
from memory.kernel.models.users import MemoryUser
from memory.project.values import RecordId
from memory.recall.answer_cache import key_of
from memory.recall.search.followups import Turn, complete
from memory.recall.search.words import terms
from sandbox_image.uac import protocol
from workers.grounding.content_words import names_one_of
from workers.grounding.values_in_entries import Claim, Source, ungrounded
from workers.repairs.repair import repair

SHORT, LONG = 4_000, 16_000
# From one size to the next, linear time grows by 4, quadratic time by 16.
MAX_GROWTH = 9
NEGLIGIBLE_SECONDS = 0.02  # a quadratic step for each pair of characters would take seconds

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
MARKS = "\u0301\u0327"  # two that stand in the other order once normalised


def seconds(do: Callable[[], object]) -> float:
    began = time.thread_time()
    do()
    return time.thread_time() - began


def assert_linear(do: Callable[[str], object], text_of: Callable[[int], str]) -> None:
    short, long = text_of(SHORT), text_of(LONG)
    quickest = min(seconds(lambda: do(long)) for _ in range(3))
    if quickest > NEGLIGIBLE_SECONDS:
        growth = quickest / min(seconds(lambda: do(short)) for _ in range(3))
        assert growth < MAX_GROWTH


def ground(text: str, value: str = "Rome") -> object:
    """Check a record against an entry with that text."""
    claim = Claim(RecordId("travel", "trips", "rome"), [1], {"to": value})
    return list(ungrounded([claim], {1: Source(1, text, NOON)}, "UTC"))


def said(text: str) -> Turn:
    return Turn("user", text)


DAYS = [NOON.date() + datetime.timedelta(days=n) for n in range(LONG)]
LETTERS = ("Wqzk", "aeiou", "bcdfg", "aeiou", "xyz")
WORDS = ["".join(letters) for letters in itertools.product(*LETTERS)]

TEXTS: dict[str, Callable[[int], str]] = {
    "marks in a row": lambda n: "a" + MARKS * (n // 2),
    "marks that are two": lambda n: "a" + "\u0344\u0327" * (n // 2),
    "spaces": lambda n: "A" + " " * n,
    "halves": lambda n: "1/" * (n // 2),
    "quotes left open": lambda n: '"' + '\\"' * (n // 2),
    "long quotes left open": lambda n: "'''" + "\\'''" * (n // 4),
    "zeros": lambda n: "0o" + "0" * n + "x",
    "zeros of a date": lambda n: "date(" + "0" * n + ".)",
    "words": lambda n: " ".join(itertools.islice(itertools.cycle(WORDS), n // 6)),
    "days": lambda n: " ".join(map(str, DAYS[: n // 11])),
    "brackets": lambda n: "date(" * (n // 5),
    "names": lambda n: "Ada Rossi, " * (n // 11),
    "numbers": lambda n: "1,2" * (n // 3),
}
USES: dict[str, Callable[[str], object]] = {
    "search": terms,
    "turn before a question": lambda text: complete("When did she buy it there?", [said(text)]),
    "question after a turn": lambda text: complete(text, [said(text)]),
    "repair": repair,
    "entry that grounds": ground,
    "value that is grounded": lambda text: ground("I go to Rome.", text),
    "both": lambda text: ground(text, text + "y"),
    "retirement": lambda text: names_one_of(text, [text[::-1]]),
    "query's key": lambda text: key_of(MemoryUser(time_zone="UTC"), text, NOON),
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("use", USES)
def test_text_is_read_in_linear_time(use: str, text: str) -> None:
    assert_linear(USES[use], TEXTS[text])


def test_quadratic_function_is_found() -> None:
    with pytest.raises(AssertionError):
        assert_linear(lambda text: [list(text) for _ in text[::20]], TEXTS["words"])


class TestMarks:
    def test_no_language_loses_any(self) -> None:
        for text in ("Ångström", "Việt Nam", "हिन्दी", "שָׁלוֹם", "Z" + "\u0301" * 30):
            assert texts.with_few_marks(text) == text

    def test_more_than_thirty_in_a_row_go(self) -> None:
        assert texts.with_few_marks("Z" + "\u0301" * 31 + "y") == "Z" + "\u0301" * 30 + "y"

    def test_marks_of_historic_scripts_count_as_well(self) -> None:
        marks = "\U00010a0d\u0301" * 15
        assert texts.with_few_marks(f"Z{marks}\u0301\U00010a0dy🎸") == f"Z{marks}y🎸"

    def test_todays_scripts_and_emoji_are_compared_with_a_table_not_range_by_range(self) -> None:
        def taken(text: str) -> float:
            return min(seconds(lambda: texts.with_few_marks(text)) for _ in range(3))

        quick, slow = taken("déjà vu 🎸 " * 5000), taken("𐌰éja vu 🎸 " * 5000)
        assert 3 * quick < slow

    def test_a_name_of_them_is_no_python(self) -> None:
        with pytest.raises(SyntaxError, match="more than 30 combining marks in a row") as raised:
            texts.parse_python("a = 1\nb" + "\u0301" * 31 + " = 2\n")
        assert raised.value.lineno == 2

    def test_marks_are_refused_before_normalising(self) -> None:
        def parse(text: str) -> None:
            with pytest.raises(SyntaxError):
                texts.parse_expression(text)

        assert_linear(parse, TEXTS["marks in a row"])


class TestCode:
    """The parser holds the interpreter until it is done, and takes a kilobyte per character."""

    @pytest.mark.parametrize("line", ["a = 1\n", "a,", "a+", "f(a)(b)\n", "[[],[]]\n"])
    def test_more_than_can_be_parsed_in_passing_is_not_parsed(
        self, line: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(texts, "ast", None)  # nobody asks the parser
        for parse in (texts.parse_python, texts.parse_expression):
            with pytest.raises(SyntaxError, match="too much code for one file"):
                parse(line * (texts.MAX_SIGNS + 1))

    @pytest.mark.parametrize("text", ["word " * 200_000, "Ärger und Ölflecken " * 50_000])
    def test_a_long_text_is_no_code(self, text: str) -> None:
        assert texts.parse_python(f"note = {text!r}\n").body

    def test_threads_parse_at_the_same_time(self) -> None:
        """The collector runs code while a syntax tree is made, and other threads go on then."""
        source = f"[{','.join(f'f(g({number}), [(1, [2])])' for number in range(300))}]"
        failed: list[Exception] = []

        def parse() -> None:
            for _ in range(10):
                try:
                    texts.parse_expression(source)
                except SystemError as error:
                    failed.append(error)

        threads = [threading.Thread(target=parse) for _ in range(4)]
        interval, thresholds = sys.getswitchinterval(), gc.get_threshold()

        def collected(phase: str, info: dict[str, int]) -> None:
            for _ in range(50):
                pass

        gc.callbacks.append(collected)
        sys.setswitchinterval(1e-6)
        gc.set_threshold(50)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            gc.callbacks.remove(collected)
            gc.set_threshold(*thresholds)
            sys.setswitchinterval(interval)
        assert not failed


class TestFrames:
    """A sandbox's values are counted before they are parsed."""

    @pytest.mark.parametrize(
        ("body", "values"),
        [
            (rb'["a,b", "c\",[", "\\", 1]', 5),
            (rb'{"a\\\"": [1, 2], "b": ","}', 5),
            (rb'["\\\\", "[[[", {}]', 5),
        ],
    )
    def test_marks_in_texts_are_no_values(self, body: bytes, values: int) -> None:
        marks = values - 1  # each but the first follows a mark, and there is one for the outermost
        assert protocol.has_more_values(body, marks - 1)
        assert not protocol.has_more_values(body, marks)

    def test_no_frame_is_counted_in_more_than_linear_time(self) -> None:
        def frame(length: int) -> str:
            return '"' + '\\"' * length + "," * length

        assert_linear(lambda text: protocol.has_more_values(text.encode(), 10), frame)
