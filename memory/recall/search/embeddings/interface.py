"""The interface of an embedding model, and how it fails."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class EmbeddingFailed(Exception):
    """The model returned no vectors; the message says why."""


class EmbedderBusy(EmbeddingFailed):
    """This process already has the maximum number of threads that may wait for the model."""


class Embedder(Protocol):
    """A model that makes vectors."""

    @property
    def name(self) -> str:
        """The name that distinguishes this model's vectors from those of other models."""

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return a vector of length 1 for each text, or of length 0 for a text without tokens.

        Raises EmbeddingFailed, or LeaseLost if the lease of the work that needs the texts is lost.
        """
