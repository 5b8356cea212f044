"""Codes of second factors, whose guesses are counted across all processes."""

from typing import Any

from allauth.mfa.base import forms
from django.core.exceptions import ValidationError

from memory.kernel.admission import rates

# Maximum number of codes that may be tried for an account per minute.
CODES = 10


class _Counted:
    user: Any

    def clean_code(self) -> str:
        if rates.left_of("login_code", CODES, str(self.user.pk), take=True) < 1:
            raise ValidationError(
                "Too many codes were tried. Wait a minute, then try again.", code="too_many"
            )
        code: str = super().clean_code()  # type: ignore[misc]
        return code


class AuthenticateForm(_Counted, forms.AuthenticateForm):  # type: ignore[misc] # it has no types
    """The code at a login."""


class ReauthenticateForm(_Counted, forms.ReauthenticateForm):  # type: ignore[misc] # it has no types
    """The code at a proof of who somebody is."""
