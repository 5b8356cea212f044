"""Import this module to set up Django in a benchmark that uses the models without a server."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")
django.setup()
