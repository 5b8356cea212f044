"""The demo's model usage and cost, read from the database because the API doesn't expose them."""

from dataclasses import dataclass

import psycopg

_CALLS = """
SELECT model, count(*), count(*) FILTER (WHERE outcome NOT IN ('ok', 'started')),
    coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), sum(cost),
    coalesce((array_agg(error ORDER BY started_at DESC) FILTER (WHERE error <> ''))[1], '')
FROM memory_llmcall GROUP BY model ORDER BY model
"""


@dataclass(frozen=True)
class Calls:
    """All calls to one model, and their cost if the model is in the price list.

    `model` is the model's full name. `last_error` is the error from the last failed call.
    """

    model: str
    calls: int
    failed: int
    input_tokens: int
    output_tokens: int
    cost: str
    last_error: str

    def __str__(self) -> str:
        cost = f", cost {self.cost}" if self.cost else ""
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        return (
            f"{calls} of {self.model}, {self.failed} failed: {self.input_tokens:,} tokens in,"
            f" {self.output_tokens:,} out{cost}"
        )


def calls_in(database_url: str) -> list[Calls]:
    """Return the stored calls, grouped by model; raise OSError if the database doesn't respond."""
    try:
        with psycopg.connect(database_url) as connection:
            rows = connection.execute(_CALLS).fetchall()
    except psycopg.OperationalError as error:
        raise ConnectionError(f"PostgreSQL: {error}") from error
    return [
        Calls(
            model,
            calls,
            failed,
            int(sent),
            int(received),
            "" if cost is None else f"{cost:f}",
            last_error,
        )
        for model, calls, failed, sent, received, cost, last_error in rows
    ]
