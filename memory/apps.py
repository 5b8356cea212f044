"""The Django app that holds people's memories."""

from django.apps import AppConfig


class MemoryConfig(AppConfig):
    """Users, their logs, their projects, and what the constraints say about them."""

    name = "memory"
    verbose_name = "Memory"
    default_auto_field = "django.db.models.BigAutoField"
