"""Codes of second factors: guesses are counted, and a code is accepted once."""

from typing import Any

from allauth.mfa.base import forms
from django.core.exceptions import ValidationError

from uac_site.sign_in import guesses


class _Counted:
    user: Any

    def clean_code(self) -> str:
        guesses.check(guesses.OF_CODES, str(self.user.pk))
        code: str = super().clean_code()  # type: ignore[misc]
        # allauth remembers used codes in a cache, which each process has for itself.
        if guesses.count(guesses.OF_USES, f"{self.user.pk} {code}") < 1:
            raise ValidationError("This code was used. Wait for the next one.", code="used")
        return code


class AuthenticateForm(_Counted, forms.AuthenticateForm):  # type: ignore[misc] # it has no types
    """The code at a login."""


class ReauthenticateForm(_Counted, forms.ReauthenticateForm):  # type: ignore[misc] # it has no types
    """The code at a proof of who somebody is."""
