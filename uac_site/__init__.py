"""Configuration of the UaC server: settings, URLs, entry points."""

from uac_site.celery import app as celery_app

__all__ = ["celery_app"]
