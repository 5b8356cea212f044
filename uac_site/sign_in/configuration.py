"""The identity providers that the environment names, as django-allauth's settings."""

from typing import Any


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
