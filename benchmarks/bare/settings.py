"""The server's own settings, with one more view."""

from uac_site.settings import *  # noqa: F403 - all of them

ROOT_URLCONF = "benchmarks.bare.urls"
