"""The site's URLs: the API, the admin and the health checks."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView, TemplateView

from memory.kernel.http import reference
from uac_site import health

urlpatterns = [
    # Browsers request the favicon for every page, including the login page.
    path("favicon.ico", RedirectView.as_view(url=static("memory/icon.svg"), permanent=False)),
    path("", RedirectView.as_view(pattern_name="reference", permanent=False)),
    path("docs/", reference.page, name="reference"),
    path(
        "playground/",
        TemplateView.as_view(template_name="playground/page.html"),
        name="playground",
    ),
    path("livez", health.live),
    path("readyz", health.ready),
    path("admin/", include("uac_site.sign_in.urls")),
    path("admin/", admin.site.urls),
    path("v1/", include("memory.urls")),
    path("mem0/", include("memory.integrations.mem0.urls")),
]

handler400 = "memory.kernel.http.errors.bad_request"
handler404 = "memory.kernel.http.errors.not_found"
handler500 = "memory.kernel.http.errors.server_error"
