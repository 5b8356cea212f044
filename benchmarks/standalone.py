"""Importing this makes the models usable in a benchmark that runs no server."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")
django.setup()
