"""The site as an app: it holds no model, only what must happen once Django has its settings."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Registers the checks of a safe deployment and sets up structured logs."""

    name = "uac_site"

    def ready(self) -> None:
        """Run once per process, after the settings are loaded."""
        from uac_site import checks, logs  # noqa: F401 - importing checks registers them

        logs.configure()
