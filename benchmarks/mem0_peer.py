"""For comparison, run mem0 in this process, as `pip install mem0ai` installs it.

mem0 uses its default stores: Qdrant in files, and SQLite. Its requests to a language model and for
embeddings are answered on this machine, so that no time is spent on the network.
"""

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

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
    """mem0's memory object, the texts that it had embedded, and how many requests that took."""

    memory: Any
    texts: list[str] = field(default_factory=list)
    calls: int = 0


@contextmanager
def mem0(embed: Embed, dimensions: int, model_url: str = "http://127.0.0.1:9/v1") -> Iterator[Peer]:
    """Open mem0 with empty stores; `model_url` is the base URL of its language model."""
    with tempfile.TemporaryDirectory(prefix="uac-mem0-") as folder:
        # mem0 reads these variables when it is imported; by default, it would send telemetry.
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=folder)
        from mem0 import Memory  # type: ignore[import-untyped]

        peer = Peer(None)
        with _embeddings(embed, peer) as embeddings_url:
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


@contextmanager
def _embeddings(embed: Embed, peer: Peer) -> Iterator[str]:
    """Serve embeddings through an API like OpenAI's; yield its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            peer.calls += 1
            peer.texts += asked["input"]
            data = [
                {"object": "embedding", "index": index, "embedding": list(vector)}
                for index, vector in enumerate(embed(asked["input"]))
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            answer = {"object": "list", "data": data, "model": asked["model"], "usage": usage}
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
