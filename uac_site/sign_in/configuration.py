"""The settings of sign-in: identity providers, and the roles that their groups give.

The settings module imports this, so it must not import any model at its top.
"""

from collections.abc import Collection
from typing import Any

from django.conf import settings


def roles_of(groups: Collection[str]) -> set[str]:
    """Return the staff roles that an identity provider's groups give."""
    pairs = (pair.rpartition("=") for pair in settings.UAC_SIGN_IN_ROLES)
    return {role.strip() for group, _, role in pairs if group.strip() in groups}


def providers(read: Any) -> dict[str, Any]:
    """Return allauth's settings of the identity providers that the environment names."""
    apps: dict[str, Any] = {"saml": {"provider_class": "uac_site.sign_in.saml.DatedProvider"}}
    if read("UAC_OIDC_ISSUER"):
        app = {
            "provider_id": "oidc",
            "name": read("UAC_SIGN_IN_NAME"),
            "client_id": read("UAC_OIDC_CLIENT_ID"),
            "secret": read("UAC_OIDC_CLIENT_SECRET"),
            "settings": {
                "server_url": read("UAC_OIDC_ISSUER").rstrip("/"),
                "oauth_pkce_enabled": True,
                "scope": read("UAC_OIDC_SCOPES"),
            },
        }
        apps["openid_connect"] = {"APPS": [app]}
    if read("UAC_SAML_METADATA_URL"):
        app = {
            "provider_id": read("UAC_SAML_ENTITY_ID"),
            "name": read("UAC_SIGN_IN_NAME"),
            "client_id": "saml",
            "settings": {
                "idp": {
                    "entity_id": read("UAC_SAML_ENTITY_ID"),
                    "metadata_url": read("UAC_SAML_METADATA_URL"),
                },
                # In an intranet, this server may be called `memory`.
                "advanced": {"allow_single_label_domains": True, "want_attribute_statement": False},
            },
        }
        apps["saml"]["APPS"] = [app]
    return apps


def validate_server_settings() -> dict[str, str]:
    """Map the names of invalid settings to what is wrong with them."""
    from memory.kernel.staff import access

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
    if settings.UAC_SAML_METADATA_URL and not settings.UAC_SAML_ENTITY_ID:
        problems["UAC_SAML_ENTITY_ID"] = "It is required with UAC_SAML_METADATA_URL."
    if not settings.UAC_PASSWORD_SIGN_IN and not has_provider:
        problem = "Nobody could sign in: set UAC_OIDC_ISSUER or UAC_SAML_METADATA_URL first."
        problems["UAC_PASSWORD_SIGN_IN"] = problem
    return problems
