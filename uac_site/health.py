"""Health checks for load balancers and supervisors."""

from pathlib import Path

from django.conf import settings
from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from redis.exceptions import RedisError

from memory.kernel.database import clock
from memory.kernel.http import clocks
from memory.kernel.http.problems import answer
from memory.kernel.work.hints import redis_client

_ASKED = ("GET", "HEAD")
# Longer, and the balancer, which waits two seconds for the whole answer, takes this process out of
# rotation because Redis hangs.
REDIS_SECONDS = 1.0


def live(request: HttpRequest) -> HttpResponse:
    """Return 200 as long as the process can respond at all."""
    return JsonResponse({"status": "ok"}) if request.method in _ASKED else _not_allowed(request)


def ready(request: HttpRequest) -> HttpResponse:
    """Return 200 if the database responds and its clock agrees with this process's, or else 503.

    Once this process has been told to drain, it returns 404, so that load balancers stop sending it
    new requests. Redis carries wake-up notifications only. Requests are still accepted without
    Redis, so its failure is reported but does not take the server out of rotation.
    """
    if request.method not in _ASKED:
        return _not_allowed(request)
    report = {"database": "ok", "redis": "ok"}
    if settings.UAC_DRAIN_FILE and Path(settings.UAC_DRAIN_FILE).exists():
        return answer(404, "This process is draining: use another process.")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if not clock.is_right():
            return answer(503, clocks.DETAIL, **report)
    except Error:
        report["database"] = "does not answer"
    try:
        redis_client(patience=REDIS_SECONDS).ping()
    except RedisError:
        report["redis"] = "does not answer"
    if report["database"] != "ok":
        return answer(503, "The database does not answer.", **report)
    return JsonResponse(report)


def _not_allowed(request: HttpRequest) -> HttpResponse:
    response = answer(
        405, f"This endpoint does not accept {request.method}; it accepts GET and HEAD."
    )
    response["Allow"] = ", ".join(_ASKED)
    return response
