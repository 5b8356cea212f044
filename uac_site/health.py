"""Health checks for load balancers and supervisors."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from redis.exceptions import RedisError

from memory.hints import redis_client


def live(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the process can answer at all."""
    return JsonResponse({"status": "ok"})


def ready(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the database answers, else 503; name what does not.

    Redis only carries hints: without it requests are still taken, so it is reported and does not
    take the server out of rotation.
    """
    report = {"database": "ok", "redis": "ok"}
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        report["database"] = "does not answer"
    try:
        redis_client().ping()
    except RedisError:
        report["redis"] = "does not answer"
    return JsonResponse(report, status=200 if report["database"] == "ok" else 503)
