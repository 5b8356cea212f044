"""The content security policy: a page may load and run only our own files, and no inline script.

Users' texts are escaped wherever they are shown. Even if one were not, a script in it would not
run.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# No inline script or style, no frame, no plugin, no other server. Data for scripts goes into
# `json_script` or attributes; Django's style sheets embed images of a few hundred bytes.
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
    """Middleware: add the policy to every HTML page."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.get("Content-Type", "").startswith("text/html"):
            response["Content-Security-Policy"] = POLICY
        return response

    return respond
