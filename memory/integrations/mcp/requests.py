"""An MCP client's request for access, on its way through the browser to the staff's approval.

It is signed, so that nobody changes what the client's registration and the server have checked.
"""

from typing import TypedDict
from urllib.parse import urlencode

from django.core import signing

# The salts of the signatures of clients' IDs and of their requests.
CLIENTS, REQUESTS = "mcp client", "mcp request"
# How long staff may take to sign in and decide.
LIFETIME_SECONDS = 1800


class AccessRequest(TypedDict):
    """What a client asks for. `user_id` is None if the client leaves the choice to staff."""

    client_id: str
    client_name: str
    redirect_uri: str
    state: str | None
    code_challenge: str
    scopes: list[str]
    issuer: str
    audience: str
    user_id: str | None


def sign(request: AccessRequest) -> str:
    """Return a request as signed text."""
    return signing.dumps(request, salt=REQUESTS, compress=True)


def read(text: str) -> AccessRequest | None:
    """Return a signed request; None if it is expired, or not signed by this server."""
    try:
        request: AccessRequest = signing.loads(text, salt=REQUESTS, max_age=LIFETIME_SECONDS)
    except signing.BadSignature:
        return None
    return request


def answer_url(request: AccessRequest, **answer: str) -> str:
    """Return the client's redirect URI with an answer, its state and the issuer."""
    state = {} if request["state"] is None else {"state": request["state"]}
    query = urlencode({**answer, **state, "iss": request["issuer"]})
    separator = "&" if "?" in request["redirect_uri"] else "?"
    return f"{request['redirect_uri']}{separator}{query}"
