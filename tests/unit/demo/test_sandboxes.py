"""Which sandboxes the workers use where the images for containers cannot be built."""

import pytest

from deploy.embedded import sandboxes
from deploy.embedded.process import ProcessFailed
from workers.sandbox.build import ImageNotBuilt


@pytest.fixture(autouse=True)
def engine_without_type_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(base: str, **options: object) -> str:
        raise ImageNotBuilt("this base has another Python")

    for name in (
        "UAC_SANDBOX_RUNNER",
        "UAC_SANDBOX_IMAGE",
        "UAC_TYPECHECK_IMAGE",
        "UAC_CONVERT_IMAGE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sandboxes, "ensure_image", lambda **options: "uac-sandbox:1")
    monkeypatch.setattr(sandboxes, "ensure_typecheck_image", fail)


def test_without_images_the_workers_use_processes() -> None:
    said: list[str] = []

    assert sandboxes.prepare_sandboxes({}, said.append) == {"UAC_SANDBOX_RUNNER": "process"}
    assert "the process runner" in said[-1]


def test_who_requires_containers_gets_no_processes() -> None:
    with pytest.raises(ProcessFailed, match="another Python"):
        sandboxes.prepare_sandboxes({"UAC_SANDBOX_RUNNER": "docker"}, print)
