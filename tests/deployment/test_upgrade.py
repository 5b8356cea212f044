"""An upgrade under load: a newer release with one more migration, and no failed request."""

import uuid

import pytest

from tests.deployment.conftest import (
    CHECKOUT,
    OURS,
    Deployment,
    health,
    inspected,
    labelled_sandboxes,
    run,
    sandboxes,
)
from tests.deployment.upgrading import (
    Load,
    by_user,
    contents,
    loaded,
    under_load,
    upgrade,
    upgrade_under_load,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

# One more column, which old code neither writes nor reads.
MIGRATION = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("memory", "{newest}")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE memory_memoryuser ADD COLUMN next_release text",
            "ALTER TABLE memory_memoryuser DROP COLUMN next_release",
        )
    ]
"""


@pytest.fixture(scope="module")
def load(deployment: Deployment) -> Load:
    return loaded(deployment)


@pytest.fixture(scope="module")
def next_image(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same release with one more migration."""
    folder = tmp_path_factory.mktemp("next")
    newest = max(path.stem for path in (CHECKOUT / "memory" / "migrations").glob("0*.py"))
    (folder / "9000_next_release.py").write_text(MIGRATION.replace("{newest}", newest))
    (folder / "Dockerfile").write_text(
        f"FROM {deployment.image}\n"
        "COPY 9000_next_release.py memory/migrations/\n"
        "LABEL org.opencontainers.image.version=next\n"
    )
    tag = deployment.image.replace(":first", ":next")
    run("docker", "build", "--quiet", f"--tag={tag}", str(folder))
    return tag


def test_an_upgrade_under_load_fails_no_request_and_loses_no_entry(
    deployment: Deployment, load: Load, next_image: str
) -> None:
    before = {name: deployment.containers(name) for name in OURS}

    upgrade_under_load(deployment, load, next_image)

    assert load.requests > 100
    for name in OURS:
        now = deployment.containers(name)
        assert len(now) == len(before[name])
        assert set(now).isdisjoint(before[name]), name
        for container in now:
            found = inspected(container)
            assert found["Config"]["Labels"]["org.opencontainers.image.version"] == "next"
            assert health(container) == "healthy"
    assert f"UAC_IMAGE={next_image}\n" in (deployment.folder / ".env").read_text()
    assert contents(load) == by_user(load.acknowledged)


def test_old_process_starts_beside_newer_database(deployment: Deployment, load: Load) -> None:
    """This is the way back, as long as migrations only add: the older release lacks one."""
    finished = upgrade(deployment, deployment.image)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    container = deployment.containers("web")[0]
    version = inspected(container)["Config"]["Labels"]["org.opencontainers.image.version"]
    assert version == "first"
    load.write(0)
    assert load.failures == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("ENV UAC_FORECAST_DAYS=-1", "UAC_FORECAST_DAYS"),
        # Its new processes answer, but never become healthy.
        ('HEALTHCHECK --interval=1s --retries=1 CMD ["false"]', "web: the new ones do not get"),
    ],
    ids=["does not start", "does not get ready"],
)
def test_a_release_that_is_broken_leaves_the_old_one_at_work(
    deployment: Deployment,
    load: Load,
    tmp_path_factory: pytest.TempPathFactory,
    fault: str,
    found: str,
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "Dockerfile").write_text(f"FROM {deployment.image}\n{fault}\n")
    broken = deployment.image.replace(":first", f":broken-{uuid.uuid4().hex[:8]}")
    run("docker", "build", "--quiet", f"--tag={broken}", str(folder))
    before = deployment.containers("web")

    with under_load(load):
        finished = upgrade(deployment, broken, UAC_READY_SECONDS="30")

    assert finished.returncode != 0
    assert found in finished.stdout + finished.stderr
    assert deployment.containers("web") == before
    assert load.failures == []
    assert broken not in (deployment.folder / ".env").read_text()


def test_entries_sent_during_the_upgrades_are_complete(deployment: Deployment) -> None:
    assert deployment.manage("verify").splitlines()[-1].endswith(" 0 problems")


def test_in_the_end_nothing_is_left(deployment: Deployment) -> None:
    """This is the last test of all: later ones would find no server."""
    theirs = sandboxes(deployment)
    assert theirs, "the pool keeps some ready"

    deployment.compose("down", "--volumes", "--timeout", "15")

    assert deployment.left() == []
    assert eventually(lambda: not theirs & labelled_sandboxes().keys())
