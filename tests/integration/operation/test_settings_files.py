"""Secrets mounted as files, and a process that is told to drain."""

from pathlib import Path

import environ
import pytest
from django.test import Client, override_settings

from uac_site.environment import FilesWithoutLineEnd


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_secret_in_a_file_ends_before_its_line_end(tmp_path: Path, end: str) -> None:
    (tmp_path / "secret").write_bytes(b" s3cret " + end.encode())
    environment = FilesWithoutLineEnd({"KEY_FILE": str(tmp_path / "secret"), "OTHER": "x\n"})

    assert environment["KEY"] == " s3cret "
    assert environment["OTHER"] == "x\n"


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_file_is_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "empty").write_text(content)
    file = {"EMAIL_URL_FILE": str(tmp_path / "empty")}
    env = environ.Env()

    env.ENVIRON = FilesWithoutLineEnd(file)
    assert env.email_url("EMAIL_URL", default="dummymail://")["EMAIL_BACKEND"].endswith(
        "dummy.EmailBackend"
    )
    with pytest.raises(environ.ImproperlyConfigured, match="EMAIL_URL"):
        env.str("EMAIL_URL")
    assert FilesWithoutLineEnd({**file, "EMAIL_URL": "smtp://there"})["EMAIL_URL"] == "smtp://there"


@pytest.mark.django_db
def test_a_process_that_drains_is_not_ready_and_answers_what_comes(tmp_path: Path) -> None:
    client = Client()
    with override_settings(UAC_DRAIN_FILE=str(tmp_path / "drain")):
        assert client.get("/readyz").status_code == 200

        (tmp_path / "drain").touch()

        assert client.get("/readyz").status_code == 404
        assert client.get("/livez").status_code == 200
