"""The examples of the API document, which `make generate` records from a server."""

import json

from tests import api_tour


def test_examples_have_nothing_that_differs_whenever_they_are_recorded() -> None:
    examples = json.loads(api_tour.EXAMPLES.read_text())

    assert api_tour.stable(examples, api_tour.DAY) == examples
