"""The server's own URLs, plus a view as bare as Django allows: a single INSERT, nothing else."""

import json

from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from uac_site.urls import handler400, handler500

__all__ = ["handler400", "handler500", "urlpatterns"]

TABLE = """
CREATE TABLE bare_entry (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id text NOT NULL, kind text NOT NULL, content json NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
)
"""


@csrf_exempt
def insert(request: HttpRequest) -> JsonResponse:
    """Insert the request's body unchecked, and answer with the number of its row."""
    body = json.loads(request.body)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO bare_entry (user_id, kind, content) VALUES (%s, %s, %s) RETURNING id",
            ["ada", body["kind"], json.dumps(body)],
        )
        (number,) = cursor.fetchone()
    return JsonResponse({"id": number}, status=202)


urlpatterns = [path("bare/", insert), path("", include("uac_site.urls"))]
