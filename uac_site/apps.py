"""The site as an app: no models, just the setup that runs once the settings are loaded."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Registers the deployment safety checks and sets up structured logs."""

    name = "uac_site"

    def ready(self) -> None:
        """Run once per process, after the settings are loaded."""
        from uac_site import checks, logs  # noqa: F401 - importing checks registers them

        logs.configure()
