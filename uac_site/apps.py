"""The site as an app: no models, just the setup that runs once the settings are loaded."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Registers the deployment safety checks, sets up structured logs, and follows sign-ins."""

    name = "uac_site"

    def ready(self) -> None:
        """Run once per process, after the settings are loaded."""
        from allauth.account import signals
        from django.contrib.auth.signals import user_logged_in

        from uac_site import checks, logs  # noqa: F401 - importing checks registers them
        from uac_site.sign_in import adapters, sessions

        logs.configure()
        user_logged_in.connect(sessions.begin)
        signals.user_logged_in.connect(adapters.record_provider_sign_in)
