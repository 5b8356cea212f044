"""URLs of the site: the API, the admin and the health checks."""

from django.contrib import admin
from django.urls import include, path

from uac_site import health

urlpatterns = [
    path("livez", health.live),
    path("readyz", health.ready),
    path("admin/", admin.site.urls),
    path("v1/", include("memory.api.urls")),
]

handler400 = "memory.api.errors.bad_request"
handler500 = "memory.api.errors.server_error"
