"""Lists that keep their rows in place right after an action."""

from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest

from memory.kernel.admin.filters import with_whole_days

# Session key under which a list's rows are kept until the list is shown again after an action.
_KEPT = "kept_rows"


def keep_rows(request: HttpRequest, keys: list[str]) -> None:
    """Remember the keys of a list's rows until the list is shown again."""
    request.session[_KEPT] = {"path": request.get_full_path(), "keys": keys}


class SteadyChangeList(ChangeList):
    """A list that, right after an action on some of its rows, shows the same rows as before.

    Otherwise these rows could move or vanish, and another row could appear where someone is about
    to click. The next time the list is loaded, it is sorted and filtered as usual.
    """

    is_kept = False

    def get_filters(self, request: HttpRequest) -> Any:
        given = self.filter_params
        self.filter_params = with_whole_days(self.model, given)
        try:
            return super().get_filters(request)
        finally:
            self.filter_params = given

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if request.method != "GET" or _KEPT not in request.session:
            return
        kept = request.session.pop(_KEPT)
        if kept["path"] != request.get_full_path():
            return
        rows = self.apply_select_related(self.root_queryset.filter(pk__in=kept["keys"]))
        by_key = {str(row.pk): row for row in rows}
        steady = [by_key[key] for key in kept["keys"] if key in by_key]
        self.is_kept = [row.pk for row in steady] != [row.pk for row in self.result_list]
        if self.is_kept:
            self.result_list = steady
