"""The server's own settings, with the URLs that include the additional view."""

from uac_site.settings import *  # noqa: F403 - all of them

ROOT_URLCONF = "benchmarks.bare.urls"
