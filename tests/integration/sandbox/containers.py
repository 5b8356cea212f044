"""The containers of one test, apart from all others on the engine."""

import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import docker as engine
import pytest
from docker.models.containers import Container

from workers.sandbox import docker, ownership
from workers.sandbox.container_template import container_config
from workers.sandbox.limits import Shape


class Containers:
    """A context in which this process's sandboxes carry a label of their own."""

    def __init__(self) -> None:
        self.label = f"uac.test-{uuid.uuid4().hex}"
        self.client = engine.from_env()
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        self._patch.setattr(ownership, "LABEL", self.label)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patch.undo()
        for container in self.all():
            container.remove(force=True)
        self.client.close()

    def all(self) -> list[Container]:
        """Return the existing containers, running or not."""
        # Ignore those that are removed meanwhile.
        return self.client.containers.list(
            all=True, filters={"label": self.label}, ignore_removed=True
        )

    def running(self) -> list[Container]:
        return self.client.containers.list(filters={"label": self.label}, ignore_removed=True)


def reconfigure(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]) -> None:
    """Create containers from a changed template."""
    original = container_config

    def changed(image: str, hash_seed: int, shape: Shape) -> dict[str, Any]:
        config = original(image, hash_seed, shape)
        change(config)
        return config

    monkeypatch.setattr(docker, "container_config", changed)
