"""Admin screens for staff, one module per aggregate, as in `memory.models`."""

from django.contrib import admin

from memory.admin import (
    alert_events,
    alerts,
    api_keys,
    backtest_results,
    backtests,
    checkpoints,
    erasures,
    feedback,
    forecasts,
    hosts,
    idempotency,
    lanes,
    llm,
    log,
    merges,
    operations,
    pauses,
    records,
    redactions,
    runs,
    search,
    staff,
    staff_mail,
    usage,
    users,
    webhooks,
    workspace_constraint_versions,
    workspace_constraints,
    workspaces,
)

admin.site.site_title = "UaC"
admin.site.site_header = "UaC: User as Code"
admin.site.index_title = "People's memories"
# There is no public site to link to, and wide lists need the space the sidebar would take up.
admin.site.site_url = None
admin.site.enable_nav_sidebar = False

__all__ = [
    "alert_events",
    "alerts",
    "api_keys",
    "backtest_results",
    "backtests",
    "checkpoints",
    "erasures",
    "feedback",
    "forecasts",
    "hosts",
    "idempotency",
    "lanes",
    "llm",
    "log",
    "merges",
    "operations",
    "pauses",
    "records",
    "redactions",
    "runs",
    "search",
    "staff",
    "staff_mail",
    "usage",
    "users",
    "webhooks",
    "workspace_constraint_versions",
    "workspace_constraints",
    "workspaces",
]
