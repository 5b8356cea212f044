"""The image that sandboxes are built on has the Python that the server's mypy is compiled for."""

from unittest.mock import Mock

import pytest
from docker.errors import APIError, ImageNotFound

from workers.sandbox import build


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_the_base_has_the_servers_python(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(build, "_python_version", lambda: version)
    client = Mock()

    assert build._available_base(client) == f"python:{version}-slim"
    client.images.pull.assert_called_once_with(f"python:{version}-slim")


def test_without_a_registry_there_is_no_base() -> None:
    client = Mock()
    client.images.pull.side_effect = APIError("no registry")
    client.images.get.side_effect = ImageNotFound("no image")

    assert build._available_base(client) is None
