"""The content security policy: a page may only load and run our own files, no inline scripts.

Users' texts are escaped wherever they are shown. Even if a text weren't escaped, a script in it
would not run.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# The policy allows no inline scripts or styles, no frames, no plugins, and no other servers. Data
# for scripts goes in `json_script` or attributes. Images in `data:` URLs are allowed because
# Django's style sheets embed small ones (a few hundred bytes).
POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'self'",
    ]
)


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Return a middleware that adds the policy to every HTML page."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.get("Content-Type", "").startswith("text/html"):
            response["Content-Security-Policy"] = POLICY
        return response

    return respond
