"""Guesses of passwords and codes: their limits per minute, counted across all processes."""

from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac

from memory.kernel.admission import rates

# Failures, per client address and per user name. An attacker who keeps failing under somebody's
# name locks that person out, a second at a time, while the attack lasts.
OF_ADDRESS = ("login_address", 20)
OF_NAME = ("login_name", 60)
# Codes that may be tried for an account.
OF_CODES = ("login_code", 10)
# A code that was accepted is accepted again after 30 seconds, when it is valid no more.
OF_USES = ("login_used_code", 2)


def check(limit: tuple[str, int], text: str, *, counted: bool = True) -> None:
    """Raise ValidationError if this was guessed too often, including this guess if `counted`."""
    if count(limit, text, counted=counted) < 1:
        raise ValidationError("Too many attempts. Wait a minute, then try again.", code="too_many")


def count(limit: tuple[str, int], text: str, *, counted: bool = True) -> int:
    """Count a guess; return how many are left."""
    key = salted_hmac("uac_site.sign_in", text).hexdigest()
    return rates.left_of(*limit, key, take=counted)
