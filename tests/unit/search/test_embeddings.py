"""Embedding models: the one of the installation, and that of a folder."""

import hashlib
import json
import re
import struct
import threading
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.recall.search import embeddings
from memory.recall.search.embeddings import static
from memory.recall.search.embeddings.interface import EmbeddingFailed
from memory.recall.search.vectors import MAX_NAME

LOCK = Path(__file__).parents[3] / "requirements-server.lock"
VOCABULARY = ("[UNK]", "dog", "puppy", "car")
VECTORS = np.array([[0, 0], [3, 4], [4, 3], [0, -2]], np.float32)


def save(folder: Path, tensors: Mapping[str, NDArray[Any]]) -> Path:
    """Save a model as model2vec does."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.tobytes()
        told = "I64" if tensor.dtype == np.int64 else "F32"
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": told, "shape": list(tensor.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    tokenizer = {
        "version": "1.0",
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: place for place, word in enumerate(VOCABULARY)},
            "unk_token": "[UNK]",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize(
    ("asked", "answer", "other"),
    [
        ("medicine", "Medication: name: Amoxicillin; dose: 500 mg", "Trip: to: Rome; cost: 840"),
        ("allergic", "Allergy: allergen: penicillin", "Expense: amount: 12; for: coffee"),
        ("sport", "I play tennis on Tuesdays", "My sister has a new kitchen"),
        ("where does she live", "Address: city: Lisbon; street: Rua Augusta", "a cold coffee"),
        ("trip to Asia", "Trip: destination: Bangkok", "Expense: amount: 12; for: coffee"),
    ],
)
def test_bundled_model_knows_related_words(asked: str, answer: str, other: str) -> None:
    question, right, wrong = static.load_wordllama().embed([asked, answer, other])

    assert question @ right > 0.15 > question @ wrong


def test_bundled_model_needs_no_network_or_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.socket", None)
    installed = re.findall(r"^([a-z0-9-]+)==", LOCK.read_text(), re.MULTILINE)

    assert static.load_wordllama().embed(["medicine"]).any()
    assert {"wordllama", "numpy"} <= {*installed}
    assert not {"torch", "tensorflow", "onnxruntime", "sentence-transformers"} & {*installed}


def test_a_vector_has_length_one_and_that_of_nothing_none() -> None:
    texts = ["", "a", "word " * 200_000, "\ud800", "字", "\x00", "🎸"]

    lengths = np.linalg.norm(static.load_wordllama().embed(texts), axis=1)

    assert lengths[0] == 0
    assert np.allclose(lengths[1:], 1)
    assert static.load_wordllama().embed([]).shape == (0, 256)


def test_a_thread_that_embeds_many_texts_keeps_none_of_them() -> None:
    model, process, grown = static.load_wordllama(), psutil.Process(), []

    def embed_many() -> None:
        for number in range(5):
            model.embed([f"{number} we {each} had tea with Anna in Rome" for each in range(2000)])
            grown.append(process.memory_info().rss)

    thread = threading.Thread(target=embed_many)
    thread.start()
    thread.join()
    # A thousand bytes per text would be ten times as much.
    assert grown[-1] - grown[0] < 800_000


def test_texts_are_embedded_as_each_by_itself() -> None:
    model = static.load_wordllama()
    texts = [f"number {place} " * (place % 7) for place in range(300)]

    assert np.allclose(model.embed(texts), np.concatenate([model.embed([one]) for one in texts]))


def test_repeated_word_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = static.load_wordllama()
    fewer = model.embed(["1/" * 1000])
    looked_up = []

    def count(self: Any, texts: Any) -> Any:
        looked_up.append(sum(len(tokens) for tokens, _ in texts))
        return sums(self, texts)

    sums = static.StaticEmbedder._sums
    monkeypatch.setattr(static.StaticEmbedder, "_sums", count)

    assert np.allclose(model.embed(["1/" * 2000]), fewer, atol=0.01)
    assert sum(looked_up) < 10


@pytest.mark.parametrize("text", ["🎸" * 10_000, "aGVsbG8gd29ybGQ" * 600, "字" * 10_000])
def test_texts_of_many_tokens_take_little_memory(text: str) -> None:
    model = static.load_wordllama()
    model.embed([text])

    tracemalloc.start()
    try:
        model.embed([text] * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000_000


@pytest.mark.parametrize("inner", ["", "0_StaticEmbedding"])
@pytest.mark.parametrize("name", ["embeddings", "embedding.weight"])
def test_a_folder_is_read_as_others_save_it(tmp_path: Path, inner: str, name: str) -> None:
    save(tmp_path / "mine" / inner, {name: VECTORS})

    model = static.load_folder(tmp_path / "mine")

    assert np.allclose(
        model.embed(["Dog", "dog puppy", "what", ""]),
        [[0.6, 0.8], np.array([7, 7]) / 98**0.5, [0, 0], [0, 0]],
    )
    assert model.name.startswith("mine/")


def test_tokens_have_weights_and_share_rows(tmp_path: Path) -> None:
    tensors = {
        "embeddings": VECTORS[1:3],
        "weights": np.array([0, 1, 1, 2], np.float32),
        "mapping": np.array([0, 0, 1, 1]),
    }

    (vector,) = static.load_folder(save(tmp_path / "m", tensors)).embed(["dog car"])

    expected = VECTORS[1] + 2 * VECTORS[2]
    assert np.allclose(vector, expected / np.linalg.norm(expected))


def test_the_name_fits_into_an_index_however_the_folder_is_called(tmp_path: Path) -> None:
    name = static.load_folder(save(tmp_path / ("字" * 80), {"embeddings": VECTORS})).name

    assert name.startswith("字字")
    assert len(name.encode()) <= MAX_NAME


def test_folder_without_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashlib, "file_digest", lambda *arguments: pytest.fail("it is read"))

    with pytest.raises(EmbeddingFailed, match="Only static models"):
        static.load_folder(save(tmp_path, {"layer.weight": VECTORS}))


def test_another_model_in_the_same_folder_has_another_name(tmp_path: Path) -> None:
    first = static.load_folder(save(tmp_path / "m", {"embeddings": VECTORS})).name
    second = static.load_folder(save(tmp_path / "m", {"embeddings": 2 * VECTORS})).name

    assert first != second


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"layer.weight": VECTORS}, "Only static models"),
        ({"embeddings": VECTORS[0]}, "no token vectors"),
        ({"embeddings": VECTORS[:2]}, "vectors for 2 tokens, but the tokenizer has 4"),
        ({"embeddings": VECTORS, "mapping": np.array([0, 1, 2, 9])}, "missing vectors"),
    ],
)
def test_model_that_is_not_static_is_refused(
    tmp_path: Path, tensors: Mapping[str, NDArray[Any]], message: str
) -> None:
    with pytest.raises(EmbeddingFailed, match=message):
        static.load_folder(save(tmp_path, tensors))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, struct.pack("<Q", 2) + b"{}"])
def test_damaged_files_are_refused(tmp_path: Path, damage: bytes) -> None:
    save(tmp_path, {"embeddings": VECTORS})
    (tmp_path / "model.safetensors").write_bytes(damage)

    with pytest.raises(EmbeddingFailed):
        static.load_folder(tmp_path)


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    weights = save(tmp_path, {"embeddings": VECTORS}) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])

    with pytest.raises(EmbeddingFailed, match="damaged"):
        static.load_folder(tmp_path)


def test_vectors_that_are_not_finite_are_no_answer(tmp_path: Path) -> None:
    model = static.load_folder(save(tmp_path, {"embeddings": VECTORS * np.nan}))

    with pytest.raises(EmbeddingFailed, match="not finite"):
        model.embed(["dog"])


def test_the_settings_name_the_model(tmp_path: Path, settings: Settings) -> None:
    save(tmp_path, {"embeddings": VECTORS})
    for named, name in {
        "off": None,
        "local": "wordllama/l2_supercat_256",
        "wordllama": "wordllama/l2_supercat_256",
        "multilingual": "universal-sentence-encoder-multilingual/3",
    }.items():
        settings.UAC_EMBEDDINGS = named
        model = embeddings.embedder(MemoryUser())
        assert (model and model.name) == name
    settings.UAC_EMBEDDINGS = str(tmp_path)
    assert embeddings.embedder(MemoryUser()) is embeddings.embedder(MemoryUser()) is not None


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("off", None),
        ("wordllama", None),
        ("multilingual", None),
        ("local", None),
        ("potion", "absolute path"),
        ("", "absolute path"),
        ("/no/such/folder", "has no model.safetensors"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(named: str, problem: str | None) -> None:
    found = embeddings.validate(named)

    assert found is None if problem is None else problem in (found or "")
