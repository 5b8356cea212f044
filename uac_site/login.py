"""Login to the staff pages: after too many failures, even the correct password is rejected.

Failures are counted across all processes, per client address and per user name. An attacker who
keeps failing under somebody's user name locks that person out, a second at a time, for as long as
the attack lasts.
"""

from typing import Any

from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from memory.kernel.admission import rates

# Maximum number of failures per minute, per client address and per user name.
OF_ADDRESS = 20
OF_NAME = 60


class LoginForm(AdminAuthenticationForm):
    """Django's login form, except that it rejects attempts after too many failures."""

    def clean(self) -> dict[str, Any]:
        """Return the cleaned form data.

        Raises ValidationError for a wrong password or after too many failures.
        """
        counted = {
            ("login_address", OF_ADDRESS): _address(self.request),
            ("login_name", OF_NAME): str(self.cleaned_data.get("username", "")),
        }
        keys = {
            limit: salted_hmac("uac_site.login", text).hexdigest()
            for limit, text in counted.items()
        }
        if any(rates.left_of(*limit, key, take=False) < 1 for limit, key in keys.items()):
            raise ValidationError(
                "Too many failed login attempts. Wait a minute, then try again.",
                code="too_many",
            )
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            for limit, key in keys.items():
                rates.left_of(*limit, key, take=True)
            raise
        return cleaned


def _address(request: HttpRequest | None) -> str:
    """Return the client's address; behind a proxy, the address reported by the proxy."""
    if request is None:
        return ""
    told = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
    behind_proxy = getattr(settings, "SECURE_PROXY_SSL_HEADER", None) is not None
    return str(told if behind_proxy and told else request.META.get("REMOTE_ADDR", ""))
