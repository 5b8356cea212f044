"""The interface of embedding models, and the errors they raise."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class EmbeddingFailed(Exception):
    """The model returned no vectors; the message says why."""


class EmbedderBusy(EmbeddingFailed):
    """The maximum number of threads in this process are already waiting for the model."""


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def name(self) -> str:
        """A name that distinguishes this model's vectors from those of other models."""

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return a unit vector for each text, or a zero vector if the text has no tokens.

        Raises EmbeddingFailed, or LeaseLost if the work that the texts belong to has lost its
        lease.
        """
