"""Compiling a typed log entry into edits, without a language model.

Types are inferred from a field's first values. Later, a field keeps its type, except that it may
become optional, and an int a float: constraints and queries were written for it. A value that does
not fit is set aside (`memory.project.set_aside`), so no entry is rejected for one of its values.
Any JSON key becomes a field, which keeps the key as its original name; objects whose keys are data
become mappings.
"""

import datetime
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from memory.project import folding
from memory.project.apply import collection_for, free_key
from memory.project.conform import (
    conform,
    infer_scalar,
    is_date,
    make_aware,
    normal_fields,
    read_value,
    shown,
)
from memory.project.edits import (
    Add,
    AddField,
    DefineClass,
    Edit,
    FieldSpec,
    Kind,
    RetireEarlier,
    Update,
    WidenField,
)
from memory.project.errors import EditError
from memory.project.literals import same
from memory.project.model import Project
from memory.project.names import (
    MAX_LENGTH,
    RESERVED_CLASSES,
    camel,
    check_class_name,
    check_key,
    check_lower_name,
    escape_collection,
    field_name_for,
    key_of_entry,
    singular,
    unused,
)
from memory.project.outline import REQUIRED, SET_ASIDE, Class, Domain, Field
from memory.project.set_aside import item_name, set_aside_in, set_aside_of, without_set_aside
from memory.project.types import (
    ANY,
    MAX_DEPTH,
    UNKNOWN,
    ListOf,
    MapOf,
    Named,
    Scalar,
    Type,
    classes_in,
    format_type,
    join,
    members_of,
    optional,
    union,
    without_none,
)
from memory.project.values import RecordId, Struct, Value
from sandbox_image.uac.records import LAPSES_AFTER


@dataclass(frozen=True)
class RecordEntry:
    """A typed log entry: one record's data, or its retirement.

    Without `occurred_at`, the entry is newer than all that the project is based on.
    """

    seq: int
    domain: str
    type: str
    key: str | None = None
    collection: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    retired: bool = False
    occurred_at: datetime.datetime | None = None

    @property
    def moment(self) -> folding.Moment:
        """The entry's place in the order in which entries occurred."""
        assert self.occurred_at is not None
        return self.occurred_at, self.seq

    def field_names(self, class_: Class) -> Collection[str]:
        """Return the names of the fields of its class that the entry sets."""
        return field_names(class_, self.data).values()

    def may_have_key(self, key: str) -> bool:
        """Return whether `key` is the key of the entry's record, given or generated."""
        if self.key is not None:
            return self.key == key
        base = key_of_entry(self.type, self.seq)
        return key == base or key.startswith(f"{base}-")


def record_id_of(project: Project, entry: RecordEntry) -> RecordId | None:
    """Return the record that an entry with a key is about; None if the entry is malformed."""
    domain = project.outline.domains.get(entry.domain) or Domain(entry.domain)
    try:
        return _record_id(project, domain, entry)
    except EditError:
        return None


def compile_record(project: Project, entry: RecordEntry) -> list[Edit]:
    """Return the edits that would add an entry to the project, without changing the project.

    An entry with a new or retired key becomes an Add, and an entry with a known key becomes an
    Update of the fields that differ, preceded by any schema edits that are needed. A late entry
    contributes only what newer entries leave (`memory.project.folding`), possibly nothing, and the
    reason is noted in the project. Raises EditError if the entry is malformed or clashes with the
    schema.
    """
    check_lower_name(entry.domain, "domain")
    check_class_name(entry.type, "type")
    domain = project.outline.domains.get(entry.domain) or Domain(entry.domain)
    record_id = _record_id(project, domain, entry)
    draft, sources = _Draft(domain, project.time_zone), (entry.seq,)
    record = project.record(record_id)
    if entry.retired:
        retirement = folding.retirement(project, record_id, entry)
        if record and isinstance(retirement, RetireEarlier):
            draft.make_optional(record.class_name, retirement.clears)
        return [*draft.edits(), retirement] if retirement else []
    if not isinstance(entry.data, Mapping):
        raise EditError("malformed", f"data must be an object, not {shown(entry.data)}")
    names = field_names(domain.classes.get(entry.type) or Class(entry.type), entry.data)
    contributed = folding.fields_to_set(project, record_id, entry, names.values())
    if contributed is None:
        return []
    data = {key: value for key, value in entry.data.items() if names[key] in contributed}
    if record is None:
        fields = draft.fit_object(entry.type, data, is_record=True)
        class_ = draft.domain.classes[entry.type]
        edit = Add(
            domain=entry.domain,
            class_name=entry.type,
            fields=normal_fields(fields, class_),
            sources=sources,
            key=record_id.key,
            collection=record_id.collection,
        )
        return [*draft.edits(), edit]
    fields = draft.fit_fields(entry.type, data)
    class_ = draft.domain.classes[entry.type]
    if class_.keeps_set_aside:
        earlier = set_aside_of(without_set_aside(record.fields, fields.keys()))
        fields[SET_ASIDE] = {**earlier, **set_aside_of(fields)}
    current = {f.name: record.fields.get(f.name, f.default) for f in class_.fields}
    changed = {name: value for name, value in fields.items() if not same(current[name], value)}
    return [*draft.edits(), Update(*record_id, changed, sources)]


def set_aside_by(project: Project, entry: RecordEntry, edits: Sequence[Edit]) -> list[str]:
    """Return the paths of an entry's values that its edits, once applied, have set aside."""
    edit = edits[-1] if edits else None
    if not isinstance(edit, Add | Update) or edit.collection is None or edit.key is None:
        return []
    domain = project.outline.domains[edit.domain]
    record = project.record(RecordId(edit.domain, edit.collection, edit.key))
    if record is None:
        return []
    names = field_names(domain.classes[record.class_name], entry.data)
    sent = {name: entry.data[key] for key, name in names.items()}
    return [
        path
        for path, raw in set_aside_in(record)
        # A newer entry may have set the field otherwise.
        if (sent[path] == raw if path in sent else re.split(r"[.\[]", path)[0] in sent)
    ]


def _record_id(project: Project, domain: Domain, entry: RecordEntry) -> RecordId:
    if entry.collection is None:
        collection = collection_for(domain, entry.type)
    else:
        collection = escape_collection(entry.collection)
        check_lower_name(collection, "collection")
    held = domain.holders.get(collection)
    if held and held.class_name != entry.type:
        raise EditError(
            "wrong_collection",
            f"{domain.name}.{collection} contains {held.class_name} records, not {entry.type}: name"
            " another collection",
        )
    key = entry.key
    if key is not None:
        check_key(key)
    elif collection in domain.singletons:
        ((record_id, _),) = project.records(domain.name, collection)
        return record_id
    elif entry.retired:
        raise EditError("unknown_key", "key is missing: give the key of the record to retire")
    else:
        key = free_key(project, domain.name, collection, entry.type, entry.seq)
    return RecordId(domain.name, collection, key)


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def has_data_keys(value: Mapping[str, object]) -> bool:
    """Return whether an object's keys are data rather than names, or there are none."""
    return not value or any(map(_is_data_key, value))


def _is_data_key(key: str) -> bool:
    """Return whether a key is data: a time, date or number such as "08:00", an id or an address."""
    has_letters = any(map(str.isalpha, key))
    is_address = "://" in key or "@" in key.strip("@")
    return key != "" and (
        not has_letters or key[0].isdigit() or is_address or bool(_UUID.fullmatch(key))
    )


def field_names(class_: Class, data: Mapping[str, object]) -> dict[str, str]:
    """Return the field name for each key of an object of this class.

    A key has the field that was made for it, and no two keys have the same. Keys that are field
    names as they are come first, so that they keep their names whatever the order of the keys is.
    """
    keys = class_.keys
    names = {key: keys[key] for key in data if key in keys}
    if len(names) == len(data):
        return names
    new = [(key, field_name_for(key)) for key in data if key not in names]
    taken = {*keys.values(), SET_ASIDE}
    for key, name in sorted(new, key=lambda pair: pair[0] != pair[1]):
        names[key] = unused(name, taken)
        taken.add(names[key])
    return {key: names[key] for key in data}


class _Misfit(Exception):
    """A value doesn't fit its field and can't widen it: it is set aside."""


_Item = TypeVar("_Item", int, str)


@dataclass(frozen=True)
class _Items(Generic[_Item]):
    """The items of a list or mapping by index or key, their common type, and those set aside."""

    type: Type
    fitted: list[tuple[_Item, Value]]
    set_aside: Mapping[int | str, object]


class _Fitted(NamedTuple):
    """A value, the type that its field needs for it, and the items of it that are set aside."""

    type: Type
    value: Value
    set_aside: Mapping[int | str, object] = MappingProxyType({})


def _fit_part(value: object, declared: Type) -> _Fitted:
    """Return what a field can say of a value that is set aside: of a datetime its day, or None."""
    is_date = without_none(declared) == Scalar("datetime.date")
    if is_date and isinstance(value, str) and infer_scalar(value, "") != Scalar("str"):
        return _Fitted(declared, datetime.datetime.fromisoformat(value).date())
    return _Fitted(optional(declared), None)


class _Draft:
    """A domain's classes while they are being adapted to a record."""

    def __init__(self, domain: Domain, zone: datetime.tzinfo) -> None:
        self.domain = domain
        self._zone = zone
        self._before = domain.classes
        self._taken = {*domain.names(), *RESERVED_CLASSES}

    def fit_object(
        self, name: str, data: Mapping[str, object], *, is_record: bool, depth: int = 0
    ) -> dict[str, Value]:
        """Return a new object's fields, after adding them to its class definition if necessary."""
        if name in self.domain.enums:
            raise EditError(
                "class_exists", f"{self.domain.name}.{name} is an enum: use another type"
            )
        if name not in self.domain.classes:
            self._taken.add(name)
            self.domain = self.domain.with_class(Class(name, is_record=is_record))
            return self._fit_fields(name, data, depth, is_new=True)
        fields = self.fit_fields(name, data, is_record=is_record, depth=depth)
        class_ = self.domain.classes[name]
        self.make_optional(name, {f.name for f in class_.fields} - fields.keys())
        return fields

    def make_optional(self, name: str, missing: Collection[str]) -> None:
        """Make those of these fields that are required optional, since a record lacks them."""
        for field_ in self.domain.classes[name].fields:
            if field_.name in missing and field_.default is REQUIRED:
                self._set_field(name, replace(field_, type=optional(field_.type)))

    def fit_fields(
        self, name: str, data: Mapping[str, object], *, is_record: bool = True, depth: int = 0
    ) -> dict[str, Value]:
        """Return the given fields, after adapting the object's class definition if necessary.

        Values that do not fit are in the field `set_aside`, and their own fields are None.
        """
        if self.domain.classes[name].is_record != is_record:
            kind = "not a record class" if is_record else "a record class"
            raise EditError(
                "not_a_record", f"{self.domain.name}.{name} is {kind}: use another type"
            )
        return self._fit_fields(name, data, depth, is_new=False)

    def _fit_fields(
        self, name: str, data: Mapping[str, object], depth: int, *, is_new: bool
    ) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        set_aside: dict[str, Any] = {}
        existing = self.domain.classes[name]
        for key, field_name in field_names(self.domain.classes[name], data).items():
            old = existing.field(field_name)
            declared = old.type if old else UNKNOWN
            is_first = without_none(declared) == UNKNOWN
            try:
                fitted = self._fit(
                    data[key], declared, name, field_name, depth + 1, is_new=is_first
                )
            except _Misfit:
                fitted = _fit_part(data[key], declared)
                set_aside[field_name] = conform(data[key], ANY, self.domain, field_name)
            fields[field_name] = fitted.value
            for item, raw in fitted.set_aside.items():
                set_aside[item_name(field_name, item)] = raw
            if old is None:
                # Most records never lapse, even if the first of their class does.
                is_required = is_new and field_name != LAPSES_AFTER
                type_ = fitted.type if is_required else optional(fitted.type)
                original = key if key != field_name else None
                self._set_field(name, Field(field_name, type_, original=original))
            elif fitted.type != old.type:
                self._set_field(name, replace(old, type=fitted.type))
        if set_aside:
            fields[SET_ASIDE] = set_aside
            if not self.domain.classes[name].keeps_set_aside:
                self._set_field(name, Field(SET_ASIDE, MapOf(ANY), {}))
        return fields

    def edits(self) -> Iterator[Edit]:
        """Yield the edits that turn the domain's stored schema into the draft's."""
        domain = self.domain.name
        for class_ in self._new_classes():
            fields = tuple(
                FieldSpec(f.name, format_type(f.type), original=f.original) for f in class_.fields
            )
            kind: Kind = "record" if class_.is_record else "object"
            yield DefineClass(domain, class_.name, fields, kind)
        for old in self._before.values():
            for field_ in self.domain.classes[old.name].fields:
                existing = old.field(field_.name)
                if existing is None:
                    type_ = format_type(field_.type)
                    yield AddField(domain, old.name, field_.name, type_, None, field_.original)
                elif existing.type != field_.type:
                    yield WidenField(domain, old.name, field_.name, format_type(field_.type))

    def _new_classes(self) -> Iterable[Class]:
        """Return the new classes, each after the classes it contains.

        This isn't the order in which the classes were encountered: a list's second object may have
        parts that the first object lacks.
        """
        ordered: dict[str, Class] = {}

        def append_class(name: str) -> None:
            class_ = self.domain.classes.get(name)
            if class_ is None or name in self._before or name in ordered:
                return
            for field_ in class_.fields:
                for part in sorted(classes_in(field_.type)):
                    append_class(part)
            ordered[name] = class_

        for name in self.domain.classes:
            append_class(name)
        return ordered.values()

    def _set_field(self, class_name: str, new: Field) -> None:
        class_ = self.domain.classes[class_name]
        fields = {f.name: f for f in class_.fields} | {new.name: new}
        self.domain = self.domain.with_class(replace(class_, fields=tuple(fields.values())))

    def _fit(
        self, value: object, declared: Type, owner: str, name: str, depth: int, *, is_new: bool
    ) -> _Fitted:
        """Return a value as its field's type, or as a wider one; raises _Misfit if it is neither.

        A type is widened only where all code that was written for it still works: from int to
        float, and to None. If `is_new`, no code was, and any union will do.
        """
        if value is None:
            return _Fitted(optional(declared), None)
        if depth > MAX_DEPTH:
            raise _Misfit
        core = without_none(declared)
        if isinstance(value, Mapping):
            fitted = self._fit_mapping(value, core, owner, name, depth, is_new=is_new)
        elif isinstance(value, list):
            fitted = self._fit_list(value, core, owner, name, depth, is_new=is_new)
        else:
            where = f"{self.domain.name}.{owner}.{name}"
            fitted = self._fit_scalar(value, UNKNOWN if is_new else declared, where)
        if fitted.type is declared:
            return fitted
        type_ = join(declared, fitted.type)
        if type_ is None and not is_new:
            raise _Misfit
        return fitted._replace(type=type_ or union(declared, fitted.type))

    def _fit_scalar(self, value: object, declared: Type, where: str) -> _Fitted:
        type_ = declared
        try:
            fitted = read_value(value, type_, self.domain, where)
        except EditError:
            type_ = infer_scalar(value, where)
            fitted = conform(value, type_, self.domain, where)
        return _Fitted(type_, make_aware(fitted, self._zone))

    def _fit_mapping(
        self,
        value: Mapping[str, object],
        core: Type,
        owner: str,
        name: str,
        depth: int,
        *,
        is_new: bool,
    ) -> _Fitted:
        """Return an object of a class or, if its keys are data, a mapping."""
        members = members_of(core)
        classes = [
            m.name for m in members if isinstance(m, Named) and m.name in self.domain.classes
        ]
        mappings = [member for member in members if isinstance(member, MapOf)]
        if not classes and not mappings and not is_new:
            raise _Misfit
        if mappings or (has_data_keys(value) and not classes):
            type_ = mappings[0].value if mappings else UNKNOWN
            items = self._fit_each(value.items(), type_, owner, name, depth)
            return _Fitted(MapOf(items.type), dict(items.fitted), items.set_aside)
        # Leave room for the number that makes the name unique.
        new_name = (owner + camel(name))[: MAX_LENGTH - 10]
        class_name = classes[0] if classes else unused(new_name, self._taken)
        fields = self.fit_object(class_name, value, is_record=False, depth=depth)
        class_ = self.domain.classes[class_name]
        return _Fitted(Named(class_name), Struct(class_name, normal_fields(fields, class_)))

    def _fit_list(
        self, value: list[object], core: Type, owner: str, name: str, depth: int, *, is_new: bool
    ) -> _Fitted:
        lists = [member for member in members_of(core) if isinstance(member, ListOf)]
        if not lists and not is_new:
            raise _Misfit
        element = lists[0].element if lists else UNKNOWN
        items = self._fit_each(enumerate(value), element, owner, singular(name), depth)
        return _Fitted(ListOf(items.type), [item for _, item in items.fitted], items.set_aside)

    def _fit_each(
        self, items: Iterable[tuple[_Item, object]], type_: Type, owner: str, name: str, depth: int
    ) -> _Items[_Item]:
        """Fit the items of a list or mapping to their common type.

        The first items may make that a union. Later, an item that doesn't fit is set aside; one
        that is a list or mapping itself is set aside as a whole.
        """
        items = list(items)
        is_new = without_none(type_) == UNKNOWN
        are_dates = all(is_date(value) for _, value in items if isinstance(value, str))
        fitted: list[tuple[_Item, Value]] = []
        set_aside: dict[int | str, object] = {}
        # Objects without keys come last: those with keys tell what they are.
        for item, value in sorted(items, key=lambda pair: pair[1] == {}):
            if is_new and isinstance(value, str) and not are_dates:
                type_ = union(type_, Scalar("str"))
                fitted.append((item, value))
                continue
            try:
                one = self._fit(value, type_, owner, name, depth + 1, is_new=is_new)
                if one.set_aside:
                    raise _Misfit
            except _Misfit:
                set_aside[item] = conform(value, ANY, self.domain, name)
                continue
            type_ = one.type
            fitted.append((item, one.value))
        places = {item: index for index, (item, _) in enumerate(items)}
        fitted.sort(key=lambda pair: places[pair[0]])
        return _Items(type_, fitted, set_aside)
