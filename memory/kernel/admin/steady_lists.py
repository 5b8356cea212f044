"""Lists that keep their rows in place right after an action."""

from collections.abc import Sequence
from typing import Any

from django.contrib.admin import DateFieldListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model
from django.http import HttpRequest

from memory.kernel.admin.filters import with_whole_days

# Session key under which a list's rows are kept until the list is shown again after an action.
_KEPT = "kept_rows"


def keep_rows(request: HttpRequest, keys: list[str], *, path: str = "") -> None:
    """Remember the keys of a list's rows until the list is shown again."""
    request.session[_KEPT] = {"path": path or request.get_full_path(), "keys": keys}


def kept_rows(request: HttpRequest) -> list[str] | None:
    """Return, once, the keys of the rows that this page showed before an action on it."""
    if request.method != "GET" or _KEPT not in request.session:
        return None
    kept = request.session.pop(_KEPT)
    return list(kept["keys"]) if kept["path"] == request.get_full_path() else None


class SteadyChangeList(ChangeList):
    """A list that, right after an action on some of its rows, shows the same rows as before.

    Otherwise these rows could move or vanish, and another row could appear where someone is about
    to click. The next time the list is loaded, it is sorted and filtered as usual.
    """

    # The rows in their places, where these are not those of the usual order.
    kept: Sequence[Model] = ()

    def get_filters(self, request: HttpRequest) -> Any:
        given = self.filter_params
        self.filter_params = with_whole_days(self.model, given)
        try:
            return super().get_filters(request)
        finally:
            self.filter_params = given

    @property
    def unknown_filters(self) -> list[str]:
        """The titles of the filters whose value in the address is none that they offer."""
        return [
            str(spec.title)
            for spec in self.filter_specs
            if spec.used_parameters
            and not isinstance(spec, DateFieldListFilter)  # which takes any period
            and not any(choice["selected"] for choice in spec.choices(self))
        ]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if (keys := kept_rows(request)) is None:
            return
        rows = self.apply_select_related(self.root_queryset.filter(pk__in=keys))
        by_key = {str(row.pk): row for row in rows}
        steady = [by_key[key] for key in keys if key in by_key]
        if [row.pk for row in steady] != [row.pk for row in self.result_list]:
            self.result_list = self.kept = steady
