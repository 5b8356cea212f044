"""Ask a model behind any endpoint that speaks OpenAI's chat completions."""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

ATTEMPTS = 5
SECONDS = 1800
BUSY = frozenset({408, 409, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Said:
    """A model's answer, and the tokens that it took by the provider's count."""

    text: str
    sent: int
    returned: int


@dataclass(frozen=True)
class Model:
    """A model's name, and its endpoint."""

    name: str
    base_url: str
    key: str

    def ask(self, system: str, text: str) -> Said:
        """Return the model's answer; waits and tries again if the provider is busy.

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
        used = body.get("usage") or {}
        content = body["choices"][0]["message"]["content"]
        return Said(
            (content or "").strip(), used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
        )
