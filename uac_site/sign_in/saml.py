"""SAML: when the provider last asked a person who they are. Needs the extra `saml`."""

from typing import Any

from allauth.socialaccount.providers.saml.provider import SAMLProvider
from lxml import etree

# The name in a social account's data.
ASKED_AT = "authn_instant"


class DatedProvider(SAMLProvider):  # type: ignore[misc] # it has no types
    """allauth's provider, which keeps the moment of the assertion's authentication, too."""

    @classmethod
    def get_package(cls) -> str:
        """Return the package with the provider's addresses."""
        return str(SAMLProvider.__module__).rpartition(".")[0]

    def extract_extra_data(self, data: Any) -> dict[str, Any]:
        """Return the attributes, and the moment in ISO 8601.

        A response that was accepted has exactly one assertion, and its signature was checked.
        """
        tree = etree.fromstring(data.get_last_response_xml().encode())
        moments = tree.xpath("//*[local-name() = 'AuthnStatement']/@AuthnInstant")
        return {**super().extract_extra_data(data), ASKED_AT: str(moments[0]) if moments else ""}
