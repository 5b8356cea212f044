"""The texts of refusals, errors and findings are reviewed in one file."""

from tests import texts


def test_the_snapshot_has_the_texts_of_the_code() -> None:
    assert texts.SNAPSHOT.read_text() == texts.page(), "run `make generate`, and review texts.txt"
