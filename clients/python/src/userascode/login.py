"""The address and the key that `userascode login` keeps."""

import json
import os
from pathlib import Path

import click

SERVICE = "userascode"
LOG_IN = "Run `userascode login` again, or set UAC_URL and UAC_KEY."


def path() -> Path:
    """Return the file with the address, and with the key if the system has no keyring."""
    return Path(click.get_app_dir(SERVICE)) / "login.json"


def store(url: str, key: str) -> str:
    """Keep an address and its key; return where the key is."""
    kept = {"url": url} if _to_keyring(url, key) else {"url": url, "key": key}
    path().parent.mkdir(parents=True, exist_ok=True)
    path().unlink(missing_ok=True)
    descriptor = os.open(path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(kept, file)
    return str(path()) if "key" in kept else "the system's keyring"


def load(url: str | None, key: str | None) -> tuple[str | None, str | None]:
    """Return an address and a key, each of them the login's if it is not given.

    The login's key is only for the login's address. Raises ClickException if it cannot be read.
    """
    if url and key:
        return url, key
    try:
        kept = json.loads(path().read_text())
        kept_url = str(kept["url"]).rstrip("/")
    except FileNotFoundError:
        return url, key
    except (ValueError, TypeError, KeyError) as error:
        raise click.ClickException(f"{path()} is damaged. {LOG_IN}") from error
    if url and url.rstrip("/") != kept_url:
        return url, key
    return url or kept["url"], key or kept.get("key") or _from_keyring(kept["url"])


def _to_keyring(url: str, key: str) -> bool:
    """Keep a key in the system's keyring; return whether there is one."""
    try:
        import keyring

        keyring.set_password(SERVICE, url, key)
    except Exception:  # not installed, locked, or one of its many back ends fails
        return False
    return True


def _from_keyring(url: str) -> str:
    """Return the key of an address. Raises ClickException if the keyring does not have it."""
    try:
        import keyring

        key: str | None = keyring.get_password(SERVICE, url)
    except Exception as error:  # no longer installed, locked, or one of its back ends fails
        raise click.ClickException(f"The system's keyring fails: {error}. {LOG_IN}") from error
    if key is None:
        raise click.ClickException(f"The system's keyring has no key for {url}. {LOG_IN}")
    return key
