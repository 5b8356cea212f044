"""The WSGI entry point. Refuses to start where the system checks find an error."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")

application = get_wsgi_application()

from uac_site.checks import refuse_unsafe_start  # noqa: E402 - needs the apps to be loaded

refuse_unsafe_start()
