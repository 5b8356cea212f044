"""The Django app that holds people's memories."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db.models.signals import post_migrate


class MemoryConfig(AppConfig):
    """Users, their logs, their projects, and what the constraints say about them."""

    name = "memory"
    verbose_name = "Memory"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have the roles written after migrations, and logins of the staff noted."""
        from memory.staff import access, audit

        post_migrate.connect(access.after_migration, sender=self)
        user_logged_in.connect(audit.logged_in)
        user_logged_out.connect(audit.logged_out)
