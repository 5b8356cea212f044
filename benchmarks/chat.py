"""Ask and pay models behind any endpoint that speaks OpenAI's chat completions."""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

from genai_prices import Usage, calc_price

ATTEMPTS = 5
SECONDS = 1800
BUSY = frozenset({408, 409, 429, 500, 502, 503, 504})

JUDGE = """\
You compare an answer with the right one, or with a point that a right answer makes. It is correct
if it says the same, in whatever words or format, and nothing that contradicts it; more detail does
no harm. If the right answer is that something was not mentioned, or cannot be known, the answer is
correct only if it says so, too. Reply with one word: correct or wrong."""


@dataclass(frozen=True)
class Reply:
    """A model's reply, and the tokens sent and returned by the provider's count."""

    text: str
    sent: int
    returned: int


@dataclass(frozen=True)
class Model:
    """A model's name, and its endpoint."""

    name: str
    base_url: str
    key: str

    @classmethod
    def named(cls, text: str) -> "Model":
        """Return the model for NAME or NAME@BASE_URL; exit if there is no URL."""
        name, _, url = text.partition("@")
        base_url = url or os.environ.get("UAC_BENCH_BASE_URL", "")
        if not base_url:
            sys.exit(f"{name}: set UAC_BENCH_BASE_URL, or write NAME@BASE_URL")
        return cls(name, base_url, os.environ.get("UAC_BENCH_API_KEY", "none"))

    def ask(self, system: str, text: str) -> Reply:
        """Return the model's reply; waits and tries again if the provider is busy.

        Raises OSError or ValueError if there is none after ATTEMPTS attempts.
        """
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        request = urllib.request.Request(
            f"{self.base_url.rstrip('/')}/chat/completions",
            data=json.dumps({"model": self.name, "messages": messages}).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as response:
                    body = json.load(response)
                break
            except urllib.error.HTTPError as error:
                if error.code not in BUSY or attempt == ATTEMPTS:
                    raise
                time.sleep(float(error.headers.get("Retry-After") or 2**attempt))
        usage = body.get("usage") or {}
        content = body["choices"][0]["message"]["content"]
        return Reply(
            (content or "").strip(),
            usage.get("prompt_tokens", 0),
            usage.get("completion_tokens", 0),
        )


def agrees(judge: Model, question: str, expected: str, answer: str) -> bool:
    """Return whether a judge finds that an answer says what is expected."""
    text = f"The question: {question}\nThe right answer, or a point of it: {expected}\n"
    verdict = judge.ask(JUDGE, f"{text}The answer to judge: {answer}").text
    return verdict.casefold().strip(" .*\"'").startswith("correct")


class Prices:
    """Prices of models in dollars: those given as NAME=SENT/RETURNED, or published ones."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = {}
        for text in given:
            name, _, prices = text.rpartition("=")
            sent, _, returned = prices.partition("/")
            try:
                self._given[name] = float(sent) / 1e6, float(returned) / 1e6
            except ValueError:
                sys.exit(f"--price {text}: write NAME=SENT/RETURNED, such as gpt-x=0.25/2")

    def cost(self, model: str, sent: float, returned: float) -> float | None:
        """Return what so many tokens cost, or None if the model's price is unknown."""
        if model in self._given:
            per_sent, per_returned = self._given[model]
            return sent * per_sent + returned * per_returned
        usage = Usage(input_tokens=round(sent), output_tokens=round(returned))
        try:
            return float(calc_price(usage, model).total_price)
        except LookupError:
            return None
