"""List filters given as query parameters; misspelt parameters are rejected, not ignored."""

from collections.abc import Callable, Collection
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.views import APIView

from memory.kernel.http.authentication import handler_name
from memory.kernel.http.idempotency import IdempotentView
from memory.kernel.http.pagination import Pagination
from memory.kernel.http.serializers import MAX_NAMED, choose_one_of

# The admin's pages are left alone.
API_PATHS = ("/v1/", "/mem0/")
PAGING = (Pagination.cursor_query_param, Pagination.page_size_query_param)


def drop_empty_parameters(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that removes a request's empty query parameters, which count as not given.

    Parameters of a deletion are left, since an id that turned out to be empty must not widen it.
    """

    def handle(request: HttpRequest) -> HttpResponseBase:
        if request.method != "DELETE" and request.path.startswith(API_PATHS):
            given = request.GET.copy()
            for name in [name for name, value in given.items() if not value]:
                del given[name]
            request.GET = given  # type: ignore[assignment]
        return get_response(request)

    return handle


def refuse_unknown(given: Collection[str], allowed: Collection[str]) -> None:
    """Raise ValidationError naming the unknown query parameters, if there are any."""
    if unknown := sorted(set(given) - set(allowed)):
        message = (
            f"Unknown parameter; this endpoint accepts {', '.join(allowed) or 'no parameters'}."
        )
        raise ValidationError({name[:100]: [message] for name in unknown[:MAX_NAMED]})


class StrictView(IdempotentView):
    """A view that rejects unknown query parameters, since a misspelt one must not be ignored.

    It accepts those that `operations.read` or `operations.write` describes; a list also accepts its
    filters' (see StrictFilterBackend).
    """

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise ValidationError naming the unknown parameters, if there are any."""
        super().initial(request, *args, **kwargs)
        if request.method not in self.allowed_methods:
            return  # the framework will reject the request
        handler = getattr(self, handler_name(request, self))
        if not is_list(request, self):
            refuse_unknown(request.query_params, getattr(handler, "query_parameters", ()))


def is_list(request: HttpRequest | Request, view: APIView) -> bool:
    """Return whether a request reads a list."""
    is_generic = request.method in ("GET", "HEAD") and isinstance(view, ListModelMixin)
    return is_generic and getattr(view, "action", "list") == "list"


class StrictFilterBackend(DjangoFilterBackend):
    """Filters a list and rejects parameters that the list does not accept.

    Besides the list's filters, the parameters in the view's `list_parameters` are accepted; by
    default, these are the paging parameters.
    """

    def filter_queryset(
        self, request: HttpRequest, queryset: QuerySet[Any], view: APIView
    ) -> QuerySet[Any]:
        """Return the rows that match; raises ValidationError naming any invalid parameters."""
        if not is_list(request, view):
            return queryset
        filterset_class = self.get_filterset_class(view, queryset)
        allowed = [
            *(filterset_class.base_filters if filterset_class else ()),
            *getattr(view, "list_parameters", PAGING),
        ]
        refuse_unknown(request.GET, allowed)
        return super().filter_queryset(request, queryset, view)

    def get_filterset(self, request: HttpRequest, queryset: QuerySet[Any], view: APIView) -> Any:
        """Return the list's filters, whose error messages name the valid choices."""
        filterset = super().get_filterset(request, queryset, view)
        for field in filterset.form.fields.values() if filterset else ():
            # For a foreign key, the valid choices would be every row in its table.
            if isinstance(field, forms.ChoiceField) and not isinstance(
                field, forms.ModelChoiceField
            ):
                choices: Any = field.choices
                named = [value for value, _ in choices if value]
                field.error_messages["invalid_choice"] = choose_one_of(named)
        return filterset


class WholeNumberFilter(django_filters.Filter):
    """An integer filter; `min_value` is required."""

    field_class = forms.IntegerField
