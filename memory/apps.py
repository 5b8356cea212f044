"""Configuration of the Django app `memory`."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db.models.signals import post_migrate


class MemoryConfig(AppConfig):
    """The Django app for users, their logs and projects, and the alerts that constraints raise."""

    name = "memory"
    verbose_name = "Memory"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what follows migrations (roles, triggers), logins and logouts."""
        from memory.kernel.staff import access, audit, recent_sign_in
        from memory.privacy import erasure_registry

        post_migrate.connect(access.after_migration, sender=self)
        post_migrate.connect(erasure_registry.refuse_rows_of_erased, sender=self)
        user_logged_in.connect(audit.logged_in)
        user_logged_in.connect(recent_sign_in.record_sign_in)
        user_logged_out.connect(audit.logged_out)
