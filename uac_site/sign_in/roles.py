"""The staff roles that an identity provider's groups give."""

from collections.abc import Collection
from importlib.util import find_spec

from django.conf import settings
from django.contrib.auth.models import Group, User

from memory.kernel.staff import access


def roles_of(groups: Collection[str]) -> set[str]:
    """Return the staff roles that an identity provider's groups give."""
    pairs = (pair.rpartition("=") for pair in settings.UAC_SIGN_IN_ROLES)
    return {role.strip() for group, _, role in pairs if group.strip() in groups}


def give_roles(user: User, roles: set[str]) -> None:
    """Make these the person's roles; groups that are no roles are left alone."""
    all_roles = {role.name for role in access.ROLES}
    user.groups.remove(*Group.objects.filter(name__in=all_roles - roles))
    user.groups.add(*Group.objects.filter(name__in=roles))


def validate_server_settings() -> dict[str, str]:
    """Map the names of invalid settings to what is wrong with them."""
    problems: dict[str, str] = {}
    names = {role.name for role in access.ROLES}
    for pair in settings.UAC_SIGN_IN_ROLES:
        group, _, role = pair.rpartition("=")
        if not group.strip() or role.strip() not in names:
            problems["UAC_SIGN_IN_ROLES"] = (
                f"{pair!r} is not `group=role` with a role out of: {', '.join(sorted(names))}."
            )
    has_provider = bool(settings.UAC_OIDC_ISSUER or settings.UAC_SAML_METADATA_URL)
    if has_provider and not settings.UAC_SIGN_IN_ROLES:
        problems["UAC_SIGN_IN_ROLES"] = (
            "Without it, nobody can sign in at the identity provider: set it to `group=role`,"
            f" with a role out of: {', '.join(sorted(names))}."
        )
    if settings.UAC_OIDC_ISSUER and not settings.UAC_OIDC_CLIENT_ID:
        problems["UAC_OIDC_CLIENT_ID"] = "It is required with UAC_OIDC_ISSUER."
    if settings.UAC_SAML_METADATA_URL and find_spec("onelogin") is None:
        problems["UAC_SAML_METADATA_URL"] = "It requires the extra `userascode-server[saml]`."
    if settings.UAC_SAML_METADATA_URL and not settings.UAC_SAML_ENTITY_ID:
        problems["UAC_SAML_ENTITY_ID"] = "It is required with UAC_SAML_METADATA_URL."
    if not settings.UAC_PASSWORD_SIGN_IN and not has_provider:
        problem = "Nobody could sign in: set UAC_OIDC_ISSUER or UAC_SAML_METADATA_URL first."
        problems["UAC_PASSWORD_SIGN_IN"] = problem
    return problems
