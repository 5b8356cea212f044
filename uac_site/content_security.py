"""What a page may load and run: our own files, and nothing that stands in the page itself.

What people said is escaped wherever it is shown. Were it not, a script in it would still not run.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# No script or style in a page, no frame, no plugin, no other server. Data for scripts goes into
# `json_script` or attributes; images of some hundred bytes are in Django's style sheets.
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
    """Middleware: give every page that is HTML the policy."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.get("Content-Type", "").startswith("text/html"):
            response["Content-Security-Policy"] = POLICY
        return response

    return respond
