"""The server's own settings, with a view more."""

from uac_site.settings import *  # noqa: F403 - all of them

ROOT_URLCONF = "benchmarks.bare.urls"
