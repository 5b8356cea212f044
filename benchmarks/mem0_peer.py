"""For comparison, run mem0 in this process, as `pip install mem0ai` installs it.

mem0 uses its default stores: Qdrant in files, and SQLite. Its requests to a language model and for
embeddings are answered on this machine, so that no time is spent on the network.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deploy.embedded.http import serve_json

KEY = "sk-of-the-benchmark"
# The number of dimensions of mem0's default embedding model.
DIMENSIONS = 1536

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


def by_hash(texts: Sequence[str], dimensions: int = DIMENSIONS) -> list[list[float]]:
    """Embed texts without a model, by hashing each word to a dimension; this is very fast."""
    return [_hashed(text, dimensions) for text in texts]


def _hashed(text: str, dimensions: int) -> list[float]:
    vector = np.zeros(dimensions)
    for word in text.casefold().split():
        vector[int.from_bytes(hashlib.md5(word.encode()).digest()[:4]) % dimensions] += 1
    unit: list[float] = (vector / (np.linalg.norm(vector) or 1)).round(4).tolist()
    return unit


@dataclass
class Peer:
    """mem0's memory object, and the texts that it had embedded."""

    memory: Any
    texts: list[str] = field(default_factory=list)


@contextmanager
def mem0(embed: Embed, dimensions: int, model_url: str = "http://127.0.0.1:9/v1") -> Iterator[Peer]:
    """Open mem0 with empty stores; `model_url` is the base URL of its language model."""
    with tempfile.TemporaryDirectory(prefix="uac-mem0-") as folder:
        # mem0 reads these variables when it is imported; by default, it would send telemetry.
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=folder)
        from mem0 import Memory  # type: ignore[import-untyped]

        peer = Peer(None)
        with serve_json(lambda body: (200, _embeddings(embed, peer, body))) as embeddings_url:
            config = {
                "llm": {
                    "provider": "openai",
                    "config": {"api_key": KEY, "openai_base_url": model_url},
                },
                "embedder": {
                    "provider": "openai",
                    "config": {
                        "api_key": KEY,
                        "openai_base_url": embeddings_url,
                        "embedding_dims": dimensions,
                    },
                },
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(Path(folder) / "qdrant"),
                        "embedding_model_dims": dimensions,
                    },
                },
                "history_db_path": str(Path(folder) / "history.db"),
            }
            peer.memory = Memory.from_config(config)
            try:
                yield peer
            finally:
                peer.memory.close()


def _embeddings(embed: Embed, peer: Peer, body: bytes) -> dict[str, Any]:
    """Return the answer to a request for embeddings, as OpenAI's API gives it."""
    asked = json.loads(body)
    peer.texts += asked["input"]
    data = [
        {"object": "embedding", "index": index, "embedding": list(vector)}
        for index, vector in enumerate(embed(asked["input"]))
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "data": data, "model": asked["model"], "usage": usage}
