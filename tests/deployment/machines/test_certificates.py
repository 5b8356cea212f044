"""Server processes talk to PostgreSQL and Redis over TLS, and check whom they talk to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment.machines.rehearsal import ROOT, Rehearsal
from tests.webhook_receiver import certificate

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

AUTHORITY = {"DATABASE_URL": "sslrootcert", "REDIS_URL": "ssl_ca_certs"}
REFUSAL = {"DATABASE_URL": "uac.E020", "REDIS_URL": "uac.E028"}
MACHINE = {"DATABASE_URL": "database", "REDIS_URL": "redis"}
STORES = sorted(AUTHORITY)


def check_deployment(rehearsal: Rehearsal, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--database", "default"],
        cwd=ROOT,
        env={**os.environ, **rehearsal.deployment.system.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_trusted_certificates_are_accepted(rehearsal: Rehearsal) -> None:
    environment = rehearsal.deployment.system.environment
    assert "sslmode=verify-full" in environment["DATABASE_URL"]
    assert environment["REDIS_URL"].startswith("rediss://")

    checked = check_deployment(rehearsal)

    assert not [code for code in REFUSAL.values() if code in checked.stderr]


@pytest.mark.parametrize("store", STORES)
def test_a_certificate_of_another_authority_is_refused(
    rehearsal: Rehearsal, tmp_path: Path, store: str
) -> None:
    url = rehearsal.deployment.system.environment[store]
    stranger = certificate(tmp_path, rehearsal.network[MACHINE[store]].address)
    trusting_another = f"{url.partition(AUTHORITY[store])[0]}{AUTHORITY[store]}={stranger}"

    checked = check_deployment(rehearsal, **{store: trusting_another})

    assert checked.returncode != 0
    assert REFUSAL[store] in checked.stderr
    assert "certificate" in checked.stderr


@pytest.mark.parametrize("store", STORES)
def test_a_certificate_of_another_machine_is_refused(rehearsal: Rehearsal, store: str) -> None:
    url = rehearsal.deployment.system.environment[store]
    address = rehearsal.network[MACHINE[store]].address
    # localhost leads to the machine as well, by a name that its certificate has not.
    with rehearsal.network[MACHINE[store]].entered():
        checked = check_deployment(rehearsal, **{store: url.replace(address, "127.0.0.1", 1)})

    assert checked.returncode != 0
    assert REFUSAL[store] in checked.stderr
    assert "certificate" in checked.stderr
