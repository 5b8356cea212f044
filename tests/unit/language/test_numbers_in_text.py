"""The numbers in a text, in every reading that it allows."""

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.language.numbers_in_text import find_numbers, numerals, spelled


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("it was 1200 in all", "1200"),
        ("1,200", "1200"),
        ("1.200", "1200"),
        ("1 200 kilometres", "1200"),
        ("1\u00a0200", "1200"),
        ("1'234'567.89", "1234567.89"),
        ("EUR 1.234.567,89", "1234567.89"),
        ("$1,234,567.89", "1234567.89"),
        ("12,50 €", "12.5"),
        ("12.50", "12.5"),
        ("1.2k", "1200"),
        ("3.5 million", "3500000"),
        ("about 3 bn", "3000000000"),
        ("15 %", "15"),
        ("15 %", "0.15"),
        ("7 percent", "0.07"),
        ("2½ cups", "2.5"),
        ("3/4 of it", "0.75"),
        (".5 mg", "0.5"),
        ("500mg", "500"),
        ("-20 degrees", "20"),
        ("twelve hundred", "1200"),
        ("two thousand and five", "2005"),
        ("one hundred and twenty-three", "123"),
        ("two hundred thirty-five thousand", "235000"),
        ("ninety-nine", "99"),
        ("a hundred", "100"),
        ("three dozen", "36"),
        ("for a fortnight", "14"),
        ("every other week", "2"),
        ("every other week", "14"),
        ("every second day", "2"),
        ("nineteen eighty-four", "1984"),
        ("twenty twenty-six", "2026"),
        ("nineteen oh seven", "1907"),
        ("the twenty-first", "21"),
        ("half a million", "500000"),
        ("two and a half", "2.5"),
        ("a dog", "1"),
        ("no children", "0"),
        ("both of them", "2"),
        ("Twelve", "12"),
    ],
)
def test_a_number_is_read(text: str, number: str) -> None:
    assert Decimal(number) in find_numbers(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,200", "12"),
        ("1,200", "200"),
        ("12.50", "1250"),
        ("1200", "120"),
        ("twelve hundred", "12"),
        ("ninety-nine", "9"),
        ("two thousand and five", "5"),
        ("someone and anybody", "1"),
        ("0.005", "5"),
        ("1,2,3", "123"),
    ],
)
def test_a_number_that_nobody_means_is_not_read(text: str, number: str) -> None:
    assert Decimal(number) not in find_numbers(text)


def test_several_in_a_row_are_several() -> None:
    assert {Decimal(n) for n in (5, 6, 7)} <= find_numbers("five, six seven")
    assert [q.text for q in spelled("from one hundred to two and back")] == ["one hundred", "two"]
    assert [q.text for q in numerals("2 or 3 % of 10k")] == ["2", "3 %", "10k"]


def test_number_has_its_place_in_the_text() -> None:
    text = "it cost 1.2 million, and twenty-three more"
    for quantity in [*numerals(text), *spelled(text)]:
        assert text[quantity.start : quantity.end] == quantity.text


@given(st.integers(0, 10**12))
def test_every_grouping_of_a_number_is_read(number: int) -> None:
    for text in (f"{number}", f"{number:,}", f"{number:,}".replace(",", "."), f"{number:_}"):
        written = text.replace("_", " ")
        assert Decimal(number) in find_numbers(f"({written})")


@given(st.decimals(0, 10**9, places=2))
def test_every_decimal_mark_is_read(number: Decimal) -> None:
    american = f"{number:,.2f}"
    european = american.translate(str.maketrans(",.", ".,"))
    assert number in find_numbers(f"a {american} b")
    assert number in find_numbers(f"a {european} b")


def words(number: int) -> str:
    """Return the number in English, as a textbook would write it."""
    ones = [
        *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
        *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
        *("eighteen", "nineteen"),
    ]
    tens = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
    if number < 20:
        return ones[number]
    if number < 100:
        rest = number % 10
        return tens[number // 10] + (f"-{ones[rest]}" if rest else "")
    sizes = {"billion": 10**9, "million": 10**6, "thousand": 1000, "hundred": 100}
    for name, size in sizes.items():
        if number >= size:
            rest = number % size
            return f"{words(number // size)} {name}" + (f" {words(rest)}" if rest else "")
    raise AssertionError


@given(st.integers(0, 10**11))
def test_every_number_in_words_is_read(number: int) -> None:
    assert Decimal(number) in find_numbers(words(number))
    assert Decimal(number) in find_numbers(words(number).replace("-", " ").upper())


@given(st.text(alphabet=st.sampled_from("0123456789.,' /%½kmab -\u00a0③٣")) | st.text())
def test_no_text_is_too_odd(text: str) -> None:
    find_numbers(text)


def test_a_long_text_takes_no_long_time() -> None:
    for text in ("1 111" + " 111" * 50_000, "1,1" * 50_000, "1" * 200_000, "one " * 50_000):
        started = time.process_time()
        find_numbers(text)
        assert time.process_time() - started < 5, text[:10]
