"""Query code is freed from what surrounds it, and is otherwise left as it is."""

import pytest

from memory.kernel.sent_code import tidied

SUM = "sum(trip.cost for trip in trips)"
LINES = f"total = {SUM}\ntotal"


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (f"```python\n{LINES}\n```", LINES),
        (f"```\n{LINES}\n```\n", LINES),
        (f"\n  ```py\n  {SUM}\n  ```", SUM),
        (f"~~~python\n{SUM}\n~~~", SUM),
        (f"```python\n{LINES}", LINES),  # cut off before the closing fence
        (f"Here is the code:\n\n```python\n{LINES}\n```\nIt adds up the costs.", LINES),
        (f"```python\r\n{SUM}\r\n```", SUM),
        (f"`{SUM}`", SUM),
        (f"\ufeff{LINES}", LINES),
        (f"\ufeff```python\n\ufeff{SUM}\n```\u200b", SUM),
        (f"\u00a0{SUM}\u00a0", SUM),
        (f"    total = {SUM}\n    total\n", LINES),
        (f"“{SUM}”", SUM),
        (f"‘{SUM}’", SUM),
        ("[t for t in trips if t.to == “Rome”]", '[t for t in trips if t.to == "Rome"]'),
        ("[t for t in trips if t.to == ‘Rome’]", "[t for t in trips if t.to == 'Rome']"),
        ("[t for t in trips if t.to == „Rom“]", '[t for t in trips if t.to == "Rom"]'),
        ("len(“Ada’s”) + len('it’s') # “so”", "len(\"Ada’s\") + len('it’s') # “so”"),
        ('t.to == “the "Blue" House”', 't.to == "the \\"Blue\\" House"'),
    ],
)
def test_text_around_code_is_left_out(sent: str, meant: str) -> None:
    assert tidied(sent) == meant


@pytest.mark.parametrize(
    "code",
    [
        LINES,
        "'“Rome”'",
        "t.to == 'Ada’s'",
        '"""\n```python\nsum(trips)\n```\n"""',
        "'`'",
        "if trips:\n    n = 1\nn",
        "len('\\ufeff')",
        "this is not Python",
        "[t for t in trips if t.to == “Rome]",
        "```a```, ```b```",
        "",
    ],
)
def test_code_without_surroundings_is_left_as_it_is(code: str) -> None:
    assert tidied(code) == code
