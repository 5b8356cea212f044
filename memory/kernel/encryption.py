"""Encryption of database content: language model API keys, prompts, answers, webhook secrets.

`UAC_ENCRYPTION_KEYS` lists the keys, newest first: the first key encrypts, and any of them can
decrypt. To rotate a key, put a new one in front; after `manage.py reencrypt`, the old key can be
removed.
"""

import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class EncryptionError(Exception):
    """There is no key to encrypt the content with, or none of the keys can decrypt the content."""


def available() -> bool:
    """Return whether content can be encrypted, i.e. whether there is a key."""
    return bool(settings.UAC_ENCRYPTION_KEYS)


def encrypt(content: bytes) -> bytes:
    """Return the content encrypted with the first key; raises EncryptionError if there is none."""
    return _keys().encrypt(content)


def decrypt(token: bytes) -> bytes:
    """Return the decrypted content; raises EncryptionError if none of the keys can decrypt it."""
    try:
        return _keys().decrypt(bytes(token))
    except InvalidToken:
        raise _undecipherable() from None


def reencrypt(token: bytes) -> bytes:
    """Re-encrypt the content with the first key; raises EncryptionError like `decrypt`."""
    try:
        return _keys().rotate(bytes(token))
    except InvalidToken:
        raise _undecipherable() from None


def is_token(text: str) -> bool:
    """Return whether a text is encrypted, rather than one that was stored when there was no key."""
    return text.startswith("gAAAA")  # the version byte of Fernet, and the zeros of a time


def validate_server_settings() -> dict[str, str]:
    """Map the setting's name to what is wrong with its keys; return {} if they are all valid."""
    for number, key in enumerate(settings.UAC_ENCRYPTION_KEYS, 1):
        try:
            Fernet(key)
        except ValueError:
            return {
                "UAC_ENCRYPTION_KEYS": f"Key number {number} is invalid: each key is 32 random"
                " bytes in URL-safe base64, as printed by"
                " `openssl rand -base64 32 | tr +/ -_`."
            }
    return {}


def _undecipherable() -> EncryptionError:
    return EncryptionError(
        "None of the UAC_ENCRYPTION_KEYS can decrypt the stored content: add the key that it was"
        " encrypted with."
    )


def _keys() -> MultiFernet:
    if not available():
        raise EncryptionError("There is no key to encrypt content with: set UAC_ENCRYPTION_KEYS.")
    return _multi_fernet(tuple(settings.UAC_ENCRYPTION_KEYS))


@functools.lru_cache(maxsize=4)
def _multi_fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])
