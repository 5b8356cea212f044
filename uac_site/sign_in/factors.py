"""Second factors: who lacks one that this server asks for."""

from allauth.account.authentication import get_authentication_records
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest


def is_lacking(request: HttpRequest) -> bool:
    """Return whether a person has signed in by a password alone although that is not enough."""
    if not settings.UAC_SECOND_FACTOR or not isinstance(request.user, User):
        return False
    records = get_authentication_records(request, request.user)
    if any(record["method"] in ("mfa", "socialaccount") for record in records):
        return False
    return not is_mfa_enabled(request.user)
