"""The address and the key that `userascode login` keeps."""

import json
import os
from pathlib import Path

import click

SERVICE = "userascode"


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


def load() -> dict[str, str]:
    """Return the address and the key that are kept; nothing if there was no login."""
    try:
        kept: dict[str, str] = json.loads(path().read_text())
    except FileNotFoundError:
        return {}
    return kept if "key" in kept else {**kept, **_from_keyring(kept["url"])}


def _to_keyring(url: str, key: str) -> bool:
    """Keep a key in the system's keyring; return whether there is one."""
    try:
        import keyring

        keyring.set_password(SERVICE, url, key)
    except Exception:  # not installed, locked, or one of its many back ends fails
        return False
    return True


def _from_keyring(url: str) -> dict[str, str]:
    import keyring

    key = keyring.get_password(SERVICE, url)
    return {"key": key} if key else {}
