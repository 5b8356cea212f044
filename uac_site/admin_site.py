"""The admin's front page in the order of daily work."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest

# Section → models. A model that is not named here stays in the section of its app.
SECTIONS = {
    "People": ["Alert", "PausedConstraint", "Forecast", "MemoryUser", "LogEntry", "EntryOutcome"],
    "Projects": [
        *("Checkpoint", "Run", "WorkspaceConstraint", "WorkspaceConstraintVersion"),
        *("Backtest", "BacktestUser", "BacktestFinding"),
    ],
    "Access": ["Workspace", "ApiKey", "StaffSubscription"],
    "Webhooks": ["WebhookEndpoint", "Delivery", "DeliveryAttempt"],
    "Language models": ["LlmCall", "LlmSpending"],
    "Machinery": [
        *("SandboxHost", "Lane", "AlertEvent", "RecordLocation", "Blob", "Bytecode"),
        *("AlertFeedback", "EventCounter", "MailCursor", "IdempotencyKey"),
        *("SearchIndex", "SearchSegment", "SearchBlock"),
    ],
}


class StaffSite(admin.AdminSite):
    """Django's admin site with our models grouped by what they are for."""

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        """Put our sections first; the accounts of the staff come last."""
        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        sections = []
        for app in apps:
            if app["app_label"] == "auth":
                app["name"] = "Staff"
            if app["app_label"] != "memory":
                continue
            models = {model["object_name"]: model for model in app["models"]}
            for name, members in SECTIONS.items():
                found = [models.pop(member) for member in members if member in models]
                if found:
                    sections.append({**app, "name": name, "models": found})
            app["models"] = list(models.values())
        return [*sections, *(app for app in apps if app["models"])]


class StaffAdminConfig(AdminConfig):
    """Installs the site in the place of Django's own."""

    default_site = "uac_site.admin_site.StaffSite"
