"""Compiling a typed log entry into edits, without a language model.

Types are inferred from the data. A field keeps its type as long as new values fit. Otherwise, the
type is widened to a common type that loses no information; if there is no such type, the entry is
rejected.
"""

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from memory.project import folding
from memory.project.apply import collection_for, free_key
from memory.project.conform import conform, infer_scalar, looks_like_date, normal_fields, shown
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
    escape_field_name,
    key_of_entry,
    singular,
    unused,
)
from memory.project.outline import REQUIRED, Class, Domain, Field
from memory.project.types import (
    MAX_DEPTH,
    UNKNOWN,
    ListOf,
    Named,
    Scalar,
    Type,
    classes_in,
    format_type,
    is_wider,
    join,
    members_of,
    optional,
    union,
    without_none,
)
from memory.project.values import RecordId, Struct, Value


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

    def field_names(self) -> Collection[str]:
        """Return the names of the fields that the entry sets."""
        return _escaped(self.data, f"{self.domain}.{self.type}").keys()

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
    draft, sources = _Draft(domain), (entry.seq,)
    record = project.record(record_id)
    if entry.retired:
        retirement = folding.retirement(project, record_id, entry)
        if record and isinstance(retirement, RetireEarlier):
            draft.make_optional(record.class_name, retirement.clears)
        return [*draft.edits(), retirement] if retirement else []
    data = _escaped(entry.data, f"{entry.domain}.{entry.type}")
    contributed = folding.fields_to_set(project, record_id, entry, data.keys())
    if contributed is None:
        return []
    data = {name: data[name] for name in contributed}
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
    current = {f.name: record.fields.get(f.name, f.default) for f in class_.fields}
    changed = {name: value for name, value in fields.items() if not same(current[name], value)}
    return [*draft.edits(), Update(*record_id, changed, sources)]


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


def _escaped(data: object, where: str, depth: int = 0) -> dict[str, object]:
    """Return a JSON object with its keys turned into valid field names, at every nesting level."""
    if not isinstance(data, Mapping):
        raise EditError("malformed", f"{where} must be an object, not {shown(data)}")
    fields: dict[str, object] = {}
    for name, value in data.items():
        field_name = escape_field_name(name, where)
        if field_name in fields:
            raise EditError(
                "bad_name",
                f"{where} has two names that both become {field_name!r}: rename one of them",
            )
        fields[field_name] = _escaped_value(value, f"{where}.{field_name}", depth + 1)
    return fields


def _escaped_value(value: object, where: str, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise EditError("too_deep", f"{where} is nested deeper than {MAX_DEPTH} levels: flatten it")
    if isinstance(value, Mapping):
        return _escaped(value, where, depth)
    if isinstance(value, list):
        return [_escaped_value(item, where, depth + 1) for item in value]
    return value


class _TypeClash(EditError):
    """A value doesn't fit its field; `type` is a type that would include the value."""

    def __init__(self, refusal: EditError, wider: Type) -> None:
        super().__init__(refusal.code, refusal.message)
        self.type = wider


class _Draft:
    """A domain's classes while they are being adapted to a record."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._before = domain.classes
        self._taken = {*domain.names(), *RESERVED_CLASSES}

    def fit_object(
        self, name: str, data: Mapping[str, object], *, is_record: bool
    ) -> dict[str, Value]:
        """Return a new object's fields, after adding them to its class definition if necessary."""
        if name not in self.domain.classes:
            return self._fit_new_class(name, data, is_record=is_record)
        fields = self.fit_fields(name, data, is_record=is_record)
        class_ = self.domain.classes[name]
        self.make_optional(name, {f.name for f in class_.fields} - fields.keys())
        return fields

    def make_optional(self, name: str, missing: Collection[str]) -> None:
        """Make those of these fields that are required optional, since a record lacks them."""
        for field_ in self.domain.classes[name].fields:
            if field_.name in missing and field_.default is REQUIRED:
                self._set_field(name, Field(field_.name, optional(field_.type)))

    def fit_fields(
        self, name: str, data: Mapping[str, object], *, is_record: bool = True
    ) -> dict[str, Value]:
        """Return the given fields, after adapting the object's class definition if necessary."""
        if self.domain.classes[name].is_record != is_record:
            kind = "not a record class" if is_record else "a record class"
            raise EditError(
                "not_a_record", f"{self.domain.name}.{name} is {kind}: use another type"
            )
        fields = {}
        for field_name, value in data.items():
            old = self.domain.classes[name].field(field_name)
            try:
                type_, fields[field_name] = self._fit(
                    value, old.type if old else UNKNOWN, name, field_name
                )
            except _TypeClash as clash:
                raise self._advised(clash, name, old) from None
            if old is None:
                self._set_field(name, Field(field_name, optional(type_)))
            elif type_ != old.type:
                self._set_field(name, replace(old, type=type_))
        return fields

    def _advised(self, clash: "_TypeClash", name: str, field_: Field | None) -> EditError:
        """Return the error, with the edit (if any) that would make the value fit in its message."""
        if field_ is None or not clash.message.endswith(WidenField.op):
            return clash
        old = [one for one in members_of(field_.type) if not is_wider(clash.type, one)]
        wider = union(*old, clash.type)
        if not classes_in(wider) <= self._before.keys():
            return clash
        edit = WidenField(self.domain.name, name, field_.name, format_type(wider))
        return EditError(clash.code, clash.message.removesuffix(edit.op) + edit.call)

    def edits(self) -> Iterator[Edit]:
        """Yield the edits that turn the domain's stored schema into the draft's."""
        domain = self.domain.name
        for class_ in self._new_classes():
            fields = tuple(FieldSpec(f.name, format_type(f.type)) for f in class_.fields)
            kind: Kind = "record" if class_.is_record else "object"
            yield DefineClass(domain, class_.name, fields, kind)
        for old in self._before.values():
            for field_ in self.domain.classes[old.name].fields:
                known = old.field(field_.name)
                if known is None:
                    yield AddField(domain, old.name, field_.name, format_type(field_.type), None)
                elif known.type != field_.type:
                    yield WidenField(domain, old.name, field_.name, format_type(field_.type))

    def _new_classes(self) -> Iterable[Class]:
        """Return the new classes, each after the classes it contains.

        This isn't the order in which the classes were encountered: a list's second object may have
        parts that the first object lacks.
        """
        ordered: dict[str, Class] = {}

        def place(name: str) -> None:
            class_ = self.domain.classes.get(name)
            if class_ is None or name in self._before or name in ordered:
                return
            for field_ in class_.fields:
                for part in sorted(classes_in(field_.type)):
                    place(part)
            ordered[name] = class_

        for name in self.domain.classes:
            place(name)
        return ordered.values()

    def _fit_new_class(
        self, name: str, data: Mapping[str, object], *, is_record: bool
    ) -> dict[str, Value]:
        if name in self.domain.enums:
            raise EditError(
                "class_exists", f"{self.domain.name}.{name} is an enum: use another type"
            )
        self._taken.add(name)
        fields: dict[str, Value] = {}
        specs = []
        for field_name, value in data.items():
            type_, fields[field_name] = self._fit(value, UNKNOWN, name, field_name)
            specs.append(Field(field_name, type_))
        # Add the class after its fields, so that nested objects' classes come first.
        self.domain = self.domain.with_class(Class(name, tuple(specs), is_record))
        return fields

    def _set_field(self, class_name: str, new: Field) -> None:
        class_ = self.domain.classes[class_name]
        fields = {f.name: f for f in class_.fields} | {new.name: new}
        self.domain = self.domain.with_class(replace(class_, fields=tuple(fields.values())))

    def _fit(self, value: object, declared: Type, owner: str, name: str) -> tuple[Type, Value]:
        """Return the type a value needs (as declared, or wider) and the converted value."""
        if value is None:
            return optional(declared), None
        where = f"{self.domain.name}.{owner}.{name}"
        try:
            return declared, conform(value, declared, self.domain, where)
        except EditError as error:
            refusal = error
        core = without_none(declared)
        if isinstance(value, Mapping):
            type_, fitted = self._fit_nested(value, core, owner, name)
        elif isinstance(value, list):
            type_, fitted = self._fit_list(value, core, owner, name)
        else:
            type_ = infer_scalar(value, where)
            fitted = conform(value, type_, self.domain, where)
        joined = join(declared, type_)
        if joined is None:
            raise _TypeClash(refusal, union(declared, type_))
        return joined, fitted

    def _fit_nested(
        self, value: Mapping[str, object], core: Type, owner: str, name: str
    ) -> tuple[Type, Value]:
        candidates = [member.name for member in members_of(core) if isinstance(member, Named)]
        class_name = next((c for c in candidates if c in self.domain.classes), None)
        if class_name is None:
            # Leave room for the number that makes the name unique.
            class_name = unused((owner + camel(name))[: MAX_LENGTH - 10], self._taken)
        fields = self.fit_object(class_name, value, is_record=False)
        class_ = self.domain.classes[class_name]
        return Named(class_name), Struct(class_name, normal_fields(fields, class_))

    def _fit_list(
        self, value: list[object], core: Type, owner: str, name: str
    ) -> tuple[Type, Value]:
        lists = [member for member in members_of(core) if isinstance(member, ListOf)]
        element = lists[0].element if lists else UNKNOWN
        if element == UNKNOWN and any(
            isinstance(item, str) and not looks_like_date(item) for item in value
        ):
            element = Scalar("str")
        items = []
        for item in value:
            try:
                element, fitted = self._fit(item, element, owner, singular(name))
            except _TypeClash as clash:
                raise _TypeClash(clash, ListOf(clash.type)) from None
            items.append(fitted)
        return ListOf(element), items
