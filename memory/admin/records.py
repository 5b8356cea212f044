"""Where each record of a project is."""

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from memory.admin.base import PresenceFilter, ReadOnlyAdmin, link, link_to_key, links_to_alerts
from memory.admin.display import NOTHING, inline
from memory.models import Alert, Checkpoint, RecordLocation


class RetiredFilter(PresenceFilter):
    """Records that were retired, or are in the project."""

    title = "whether it was retired"
    parameter_name = "retired"
    field, filled, empty = "retired_version", "retired", "in the project"


@admin.register(RecordLocation)
class RecordLocationAdmin(ReadOnlyAdmin[RecordLocation]):
    """In which file each record is, and which keys are used up."""

    list_display = ["record", "collection_name", "user_link", "file", "added_in", "retired_in"]
    list_filter = [RetiredFilter, "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["=key", "collection", "user__user_id"]
    search_help_text = "By the whole key, collection or user id."
    ordering = ["-id"]
    when_empty = "No project has a record yet."
    fields = [
        "user_link",
        "record",
        "collection_name",
        "file",
        "added_in",
        "retired_in",
        "alerts",
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RecordLocation]:
        """Look up the versions' keys along."""
        versions = Checkpoint.objects.filter(user=OuterRef("user"))
        added = versions.filter(version=OuterRef("added_version"))
        retired = versions.filter(version=OuterRef("retired_version"))
        return (
            super()
            .get_queryset(request)
            .annotate(
                added_id=Subquery(added.values("pk")[:1]),
                retired_id=Subquery(retired.values("pk")[:1]),
            )
        )

    @admin.display(description="record", ordering="key")
    def record(self, location: RecordLocation) -> str:
        """Name the record."""
        return inline(location.key)

    @admin.display(description="in", ordering="collection")
    def collection_name(self, location: RecordLocation) -> str:
        """Name the collection."""
        return inline(f"{location.domain}.{location.collection}")

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, location: RecordLocation) -> str:
        """Lead to the user."""
        return link(location.user)

    @admin.display(description="file", ordering="path")
    def file(self, location: RecordLocation) -> str:
        """Name the file."""
        return inline(location.path) if location.path else NOTHING

    @admin.display(description="added in", ordering="added_version")
    def added_in(self, location: RecordLocation) -> str:
        """Lead to the version that added it."""
        key = getattr(location, "added_id", None)
        return link_to_key(Checkpoint, key, f"v{location.added_version}")

    @admin.display(description="retired in", ordering="retired_version")
    def retired_in(self, location: RecordLocation) -> str:
        """Lead to the version that retired it."""
        if location.retired_version is None:
            return NOTHING
        key = getattr(location, "retired_id", None)
        return link_to_key(Checkpoint, key, f"v{location.retired_version}")

    @admin.display(description="alerts that rest on it")
    def alerts(self, location: RecordLocation) -> str:
        """Lead to the alerts that cite it, live ones and past ones."""
        item = {
            "domain": location.domain,
            "collection": location.collection,
            "key": location.key,
        }
        citing = Alert.objects.filter(user=location.user, evidence__contains=[item])
        return links_to_alerts(citing)
