"""The columns of screens: a model's fields, shown by their types, and methods of screens."""

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.expressions import Combinable
from django.template.defaultfilters import filesizeformat

from memory.kernel.admin.display import NOTHING, badge, inline, preformatted, pretty, shortened
from memory.kernel.admin.links import link
from memory.kernel.admin.masking import HIDDEN
from memory.kernel.models.privacy import Erase, masked_columns, privacy_of

# A method of a screen: the screen and the row as arguments, the markup as the result.
Column: TypeAlias = Callable[[Any, Any], str]
Method = TypeVar("Method", bound=Callable[..., Any])

# Lists are sorted by the names of these rows.
_ORDERINGS = {"user": "user__user_id", "workspace": "workspace__name"}


def plain_column(
    description: str, ordering: str | Combinable | None = None, *, boolean: bool | None = None
) -> Callable[[Method], Method]:
    """Make a method a column that is shown to everyone who may see the screen."""
    return _method_column(description, ordering, boolean, is_content=False)


def content_column(
    description: str, ordering: str | Combinable | None = None, *, boolean: bool | None = None
) -> Callable[[Method], Method]:
    """Make a method a column that is hidden from staff who may not see content."""
    return _method_column(description, ordering, boolean, is_content=True)


def _method_column(
    description: str,
    ordering: str | Combinable | None,
    boolean: bool | None,
    *,
    is_content: bool,
) -> Callable[[Method], Method]:
    display = admin.display(description=description, ordering=ordering, boolean=boolean)

    def mark(method: Method) -> Method:
        vars(method)["is_content"] = is_content
        marked: Method = display(method)
        return marked

    return mark


def row_column(
    show: Callable[[Any], str],
    description: str,
    ordering: str | Combinable | None = None,
    *,
    plain: bool = False,
) -> Column:
    """Return a column that shows the row; it is content unless it is `plain`."""

    @_method_column(description, ordering, None, is_content=not plain)
    def shown(screen: Any, row: Any) -> str:
        return show(row)

    return shown


def column(
    path: str,
    show: Callable[[Any], str],
    description: str,
    ordering: str | Combinable | None = None,
    *,
    plain: bool = False,
) -> Column:
    """Return a column that shows one value of the row, such as `user.workspace`."""
    value_of = attrgetter(path)
    return row_column(lambda row: show(value_of(row)), description, ordering, plain=plain)


# -- Fields --------------------------------------------------------------------------------------


class FieldColumn:
    """A column that Django calls with the row: a field shown by its type, or "(hidden)"."""

    def __init__(self, name: str, label: str, field: Any, *, hidden: bool, brief: bool) -> None:
        self.__name__ = name
        self.short_description = label
        self._field, self._hidden, self._brief = field, hidden, brief
        # Hidden columns are not sorted by, since the order would reveal them.
        if field is not None and not hidden and not isinstance(field, _UNSORTED):
            self.admin_order_field = _ORDERINGS.get(name, field.attname)

    def __call__(self, row: models.Model) -> str:
        return HIDDEN if self._hidden else show_field(row, self._field, brief=self._brief)

    def __str__(self) -> str:
        return self.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldColumn) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)


_UNSORTED = (models.TextField, models.JSONField, models.BinaryField, ArrayField)
# Django shows these fields by itself.
_NATIVE = (
    *(models.IntegerField, models.FloatField, models.DecimalField, models.BooleanField),
    *(models.DateField, models.UUIDField),
)


def _is_size(field: Any) -> bool:
    return str(field.name).endswith("_bytes")


def show_field(row: Any, field: Any, *, brief: bool) -> str:
    """Show a field by its type; `brief` is for lists."""
    value = getattr(row, field.name)
    if value in (None, "", []):
        return NOTHING
    if field.is_relation:
        return link(value)
    if _is_size(field):
        return filesizeformat(value)
    if field.choices:
        return badge(value, getattr(row, f"get_{field.name}_display")())
    if isinstance(field, models.JSONField):
        return pretty(value)
    if isinstance(field, models.BinaryField):
        return filesizeformat(len(value))
    if isinstance(field, ArrayField):
        return inline(", ".join(map(str, value)))
    if isinstance(field, models.TextField) and not brief:
        return preformatted(value)
    return inline(shortened(value) if brief else value)


def columns_of(
    screen: Any, names: Sequence[Any], *, hide: bool, brief: bool, editable: Collection[str] = ()
) -> list[Any]:
    """Return a screen's columns as Django takes them; with `hide`, those with content are hidden.

    Fields in `editable` belong to a form.
    """
    return [
        columns_of(screen, name, hide=hide, brief=brief, editable=editable)
        if isinstance(name, list | tuple)
        else name
        if name == "action_checkbox" or name in editable
        else _column_of(screen, name, hide=hide, brief=brief)
        for name in names
    ]


def _column_of(screen: Any, name: str, *, hide: bool, brief: bool) -> Any:
    hidden, field = hide and not is_plain(screen, name), _field_of(screen, name)
    is_native = isinstance(field, _NATIVE) and not field.choices and not _is_size(field)
    if not hidden and (field is None or is_native):
        return name
    label = screen.labels.get(name) or str(label_for_field(name, screen.model, screen))
    return FieldColumn(name, label, field, hidden=hidden, brief=brief)


def is_plain(screen: Any, name: str) -> bool:
    """Return whether a column is shown to everyone; methods and fields are not unless declared."""
    is_content = getattr(getattr(screen, name, None), "is_content", None)
    if is_content is not None:
        return not is_content
    if (field := _field_of(screen, name)) is not None:
        return field.name not in masked_columns(screen.model)
    # A form may have fields of its own.
    return not hasattr(screen, name) and privacy_of(screen.model).erase is Erase.NOTHING


def _field_of(screen: Any, name: str) -> Any:
    if hasattr(getattr(screen, name, None), "is_content"):
        return None
    try:
        return next(
            one for one in screen.model._meta.concrete_fields if name in (one.name, one.attname)
        )
    except (StopIteration, FieldDoesNotExist):
        return None
