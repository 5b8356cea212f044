"""Import this to use the models in a benchmark that runs no server."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")
django.setup()
