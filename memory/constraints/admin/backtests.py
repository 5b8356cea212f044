"""Backtests: the alerts that a constraint would have raised, and the approval of its version."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import Script
from django.http import HttpRequest, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from memory.constraints import applicability, backtest_reports, backtests, workspace_constraints
from memory.constraints.models.backtests import GOING_ON, Backtest, BacktestState
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraintVersion,
)
from memory.kernel.admin.actions import ask, back_url, staff_of
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import badge, counted, inline, lines, record_name, shortened
from memory.kernel.admin.links import link, link_to_key, page_url
from memory.kernel.admin.masking import name_of
from memory.kernel.admin.rows import cached_on_row
from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.users import MemoryUser
from memory.project.shapes import ShapeError
from memory.versions.models.checkpoints import Blob

# The maximum number of alerts listed beside a constraint's source.
_LISTED_IN_DRY_RUN = 8
# The maximum number of versions approved at once: each is matched against the workspace's users.
MAX_APPROVED = 20
# What the page of an ended backtest shows beside a constraint's source.
_RESULT = ".field-concluded .readonly, .field-findings .readonly"

# What a version's backtest shows; its report is large, and several parts of a page need it.
tested_of = cached_on_row(backtest_reports.tested)


@admin.register(Backtest)
class BacktestAdmin(ReadOnlyAdmin[Backtest]):
    """Backtests of constraints over users' histories."""

    list_display = ["name", "state", "workspace", "created_by", "created_at"]
    list_filter = ["state", "workspace"]
    list_select_related = ["workspace", "version__constraint", "user"]
    search_fields = ["constraint", "user__user_id"]
    search_help_text = "Search by constraint path or, for a user's own constraint, by user id."
    ordering = ["-created_at"]
    actions = ["approve", "cancel"]
    asking = ["approve"]
    when_empty = (
        "There are no backtests yet. A workspace constraint version can be backtested once it has"
        " passed its checks."
    )
    fieldsets = [
        section(None, "of_what", "workspace", "progress", "concluded", "period"),
        section("Alerts that the constraint would have raised", "fired", "findings"),
        section("Users without a result", "problems"),
        section(
            "Work status",
            *("created_by", "created_at", "started_at", "finished_at", "attempts"),
            *("run_after", "last_error"),
            collapsed=True,
        ),
    ]

    class Media:
        """The script that updates the displayed progress while the backtest runs."""

        js = [Script("memory/progress.js", defer=True)]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_GET(self.progress_view))
        return [
            path("<uuid:pk>/progress/", view, name="memory_backtest_progress"),
            *super().get_urls(),
        ]

    def progress_view(self, request: HttpRequest, pk: UUID) -> JsonResponse:
        backtest = self.seen_or_refuse(request, pk)
        counts = backtest_reports.count_users(backtest)
        return JsonResponse(
            {
                "text": _so_far(backtest),
                "working": backtest.state in GOING_ON,
                "done": counts["done"],
                "of": max(counts["fits"], 1),
            }
        )

    def actions_for(self, row: Backtest) -> Collection[str]:
        if row.state in GOING_ON:
            return ["cancel"]
        version = row.version
        able = version is not None and version.state == VersionState.PASSED
        return ["approve"] if able and row.state == BacktestState.FINISHED else []

    @content_column("backtest", "constraint")
    def name(self, backtest: Backtest) -> str:
        if backtest.version is not None:
            return str(backtest.version)
        return inline(f"{backtest.constraint} of {backtest.user}")

    @content_column("constraint")
    def of_what(self, backtest: Backtest) -> str:
        if backtest.version is not None:
            return link(backtest.version)
        texts = Blob.objects.filter(user=backtest.user, hash=backtest.source_hash)
        key = texts.values_list("pk", flat=True).first()
        source = link_to_key(Blob, key, backtest.constraint)
        return format_html("{} of {}", source, link(backtest.user))

    @plain_column("state")
    def progress(self, backtest: Backtest) -> SafeString:
        """Show the state; while the backtest runs, a script keeps the progress up to date."""
        if backtest.state not in GOING_ON:
            return badge(backtest.state, backtest.get_state_display())
        return show_progress(backtest)

    @content_column("conclusion")
    def concluded(self, backtest: Backtest) -> str:
        return inline(backtest_reports.conclusion(backtest))

    @plain_column("period")
    def period(self, backtest: Backtest) -> str:
        return f"{backtest.days} days up to {backtest.until:%Y-%m-%d %H:%M} UTC"

    @plain_column("alerts")
    def fired(self, backtest: Backtest) -> str:
        counts = backtest_reports.count_users(backtest)
        more = f" ({counts['left_out']:,} of them not listed)" if counts["left_out"] else ""
        alerts = counted(counts["findings"], "alert")
        users = counted(counts["done"] - counts["failed"], "user")
        return f"{alerts}{more}, for {counts['fired']} of {users}"

    @content_column("alerts, earliest first")
    def findings(self, backtest: Backtest) -> SafeString | str:
        return show_findings(backtest)

    @content_column("problems")
    def problems(self, backtest: Backtest) -> SafeString | str:
        return lines(
            format_html(
                "{} {} {} {}",
                badge(one["kind"], one["kind"].replace("_", " ")),
                inline(one["user_id"]),
                f"v{one['version']} on {one['at'][:10]}" if one["at"] else "",
                inline(shortened(one["message"], 300)),
            )
            for one in backtest_reports.summary(backtest)["problems"]
        )

    @admin.action(description="Approve the backtested versions", permissions=["approve"])
    def approve(
        self, request: HttpRequest, queryset: QuerySet[Backtest]
    ) -> TemplateResponse | None:
        if own := queryset.filter(version=None).count():
            why = "a user's own constraint goes live without approval"
            messages.warning(request, f"{counted(own, 'backtest')} skipped: {why}.")
        return ask_to_approve(request, (one.version for one in queryset if one.version), queryset)

    @admin.action(description="Cancel the selected backtests", permissions=["approve"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Backtest]) -> None:
        for backtest in queryset:
            try:
                backtests.cancel(backtest, by=staff_of(request))
            except backtests.NotGoingOn as error:
                messages.warning(request, f"{name_of(backtest)}: {error}")
            else:
                messages.success(request, f"The {name_of(backtest)} was cancelled.")


def show_progress(backtest: Backtest, *, shows: str = "") -> SafeString:
    """Show the progress of a running backtest, which a script keeps up to date.

    Once the backtest has ended, the script shows the elements of the backtest's page that `shows`
    selects.
    """
    counts = backtest_reports.count_users(backtest)
    return format_html(
        '<span class="progress working"><progress value="{}" max="{}" aria-label="Users">'
        '</progress> <span role="status" aria-live="polite" data-progress="{}" data-working="1"'
        ' data-page="{}" data-shows="{}">{}</span></span>',
        counts["done"],
        max(counts["fits"], 1),
        reverse("admin:memory_backtest_progress", args=[backtest.pk]),
        page_url(backtest),
        shows,
        _so_far(backtest),
    )


def show_dry_run(backtest: Backtest) -> SafeString:
    """Show what a constraint would have raised, or how far the backtest is that finds out."""
    if backtest.state in GOING_ON:
        return show_progress(backtest, shows=_RESULT)
    return format_html(
        "<p>{} {}</p>{}",
        link(backtest, "Backtest:"),
        inline(backtest_reports.conclusion(backtest)),
        show_findings(backtest, _LISTED_IN_DRY_RUN),
    )


def show_findings(backtest: Backtest, most: int = backtests.MAX_FINDINGS) -> SafeString | str:
    """List the first alerts that the constraint would have raised."""
    findings = backtest_reports.findings_of(backtest)
    shown = findings[:most]
    ids = {finding["user_id"] for finding in shown}
    rows_of_users = MemoryUser.objects.filter(workspace=backtest.workspace, user_id__in=ids)
    users = {user.user_id: user for user in rows_of_users.select_related("workspace")}
    rows: list[SafeString | str] = [
        format_html(
            "{} {} {} v{} {} {} {}",
            finding["day"],
            badge(finding["severity"]),
            link(users.get(finding["user_id"])),
            finding["version"],
            inline(shortened(finding["message"], 200)),
            _records(finding["evidence"]),
            f"resolved {finding['resolved_at'][:10]}" if finding["resolved_at"] else "",
        )
        for finding in shown
    ]
    if len(findings) > most:
        rows.append(f"and {counted(len(findings) - most, 'more alert')}")
    return lines(rows)


def ask_to_approve(
    request: HttpRequest,
    versions: Iterable[WorkspaceConstraintVersion],
    chosen: QuerySet[Any],
) -> TemplateResponse | None:
    """Ask staff to confirm an approval, and offer another backtest instead.

    The page says for whom each version will run, to how many users it applies now, and how many its
    backtest covered. It leads back to where the rows were `chosen`. Returns None if none of the
    versions can be approved, or if there are too many.
    """
    if chosen.count() > MAX_APPROVED:
        messages.error(request, f"Nothing was done: select at most {MAX_APPROVED} rows.")
        return None
    able = []
    for version in dict.fromkeys(versions):  # one may have several of the chosen backtests
        if reason := workspace_constraints.why_not_approvable(version, tested_of(version)):
            messages.error(request, f"{version.constraint.name}: {reason}")
        else:
            able.append(version)
    if not able:
        return None
    return ask(
        request,
        "approve",
        able,
        WorkspaceConstraintVersion,
        title=f"Approve {counted(len(able), 'version')}?",
        verb="Approve",
        previews=[(version, _preview(version)) for version in able],
        back_url=back_url(request, chosen),
    )


def _preview(version: WorkspaceConstraintVersion) -> Sequence[str]:
    tested, tally = tested_of(version), _coverage(version)
    percentage = version.constraint.percentage
    if not version.constraint.enabled:
        share = "for nobody until you enable the constraint"
    elif percentage:
        share = f"for {percentage} % of users"
    else:
        share = "for nobody until you set a percentage"
    sentences = [f"Once approved, it runs {share}.", tested.detail]
    if tested.backtest is not None and tally is not None:
        counts = backtest_reports.count_users(tested.backtest)
        sentences.append(
            f"It applies to {_at_least(tally)}{counted(tally.applies, 'user')} now. The backtest"
            f" covered {counted(counts['fits'], 'user')}, and"
            f" {counted(counts['findings'], 'alert')} would have opened."
        )
    return sentences


def describe_reach(version: WorkspaceConstraintVersion) -> str:
    """Say for how many users a live version runs now, or "" if it has no valid shape."""
    tally = _coverage(version)
    if tally is None:
        return ""
    within = tally.within if version.constraint.enabled else 0
    return (
        f"It runs for {_at_least(tally)}{counted(within, 'user')} now,"
        f" of {tally.applies:,} to whom it applies."
    )


def _coverage(version: WorkspaceConstraintVersion) -> applicability.Coverage | None:
    try:
        return applicability.coverage(version)
    except ShapeError:
        return None


def _at_least(tally: applicability.Coverage) -> str:
    return "at least " if tally.after else ""


def approve_version(request: HttpRequest, version: WorkspaceConstraintVersion) -> None:
    """Make a version live and report the backtest that allows it, or show why it can't go live."""
    tested = backtest_reports.tested(version)
    try:
        workspace_constraints.approve(version, by=staff_of(request))
    except workspace_constraints.NotApprovable as error:
        messages.error(request, f"{version.constraint.name}: {error}")
        return
    if version.constraint.percentage:
        live = f"{version} is live. {describe_reach(version)} {tested.detail}"
        messages.success(request, live)
        return
    unused = '{} is approved and runs for nobody yet: <a href="{}#id_percentage">set {}</a>. {}'
    url = page_url(version.constraint)
    setting = "the percentage of users"
    messages.warning(request, format_html(unused, version, url, setting, tested.detail))


def start_backtest(request: HttpRequest, version: Any) -> None:
    """Start a backtest of a version and link to it, or show why it cannot start."""
    try:
        started = backtests.start(version, by=staff_of(request))
    except (backtests.NotTestable, LimitExceeded) as error:
        messages.warning(request, f"{version}: {error}")
    else:
        messages.success(request, format_html("Started: {}", link(started)))


def _records(evidence: list[dict[str, Any]]) -> SafeString:
    names = ((record_name(item["class"], item["key"]),) for item in evidence)
    return format_html_join(", ", "{}", names)


def _so_far(backtest: Backtest) -> str:
    counts = backtest_reports.count_users(backtest)
    users = counted(counts["fits"], "user")
    return f"{backtest.get_state_display()}: {counts['done']} of {users}"
