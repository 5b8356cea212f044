"""A user's classes in your own code.

`userascode pull ada` and `User.schema` write a module with a dataclass for each class of a user,
and `Memory`, whose attributes are the user's collections: `Memory(user).trips[0].cost` is checked
by your type checker, and is the value in Python. This is what such a module imports.
"""

from dataclasses import dataclass
from typing import Any, Generic, NewType, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from userascode._sync.user import User
from userascode.errors import UserAsCodeError
from userascode.models import TypedRecord
from userascode.typed_json import without_tags

# "2021", "2021-11" or "2021-11-05"; "1995~" is about that year, and "2023-07-15/2023-07-16" one of
# these days: see docs/values.md.
PartialDate = NewType("PartialDate", str)


@dataclass(kw_only=True)
class Record:
    """A record of a user."""

    key: str
    # The numbers of the entries that it is based on.
    sources: list[int]


RecordType = TypeVar("RecordType", bound=Record)
Target = TypeVar("Target", bound=Record)


@dataclass
class Ref(Generic[Target]):
    """A reference to a record of another collection, by its key."""

    key: str


class SchemaChanged(UserAsCodeError):
    """A record does not have the fields of the module, which was written for another version."""

    def __init__(self, collection: str, error: ValidationError) -> None:
        super().__init__(f"{collection} has changed: run `userascode pull` again. {error}")


class Memory:
    """The records of a user, each collection read once, when it is first used."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._read: dict[str, list[Any]] = {}

    def records_of(self, collection: str, record_class: type[RecordType]) -> list[RecordType]:
        """Return the records of a collection. Raises SchemaChanged."""
        if collection not in self._read:
            parser = TypeAdapter(record_class)
            records = self._user.records(collection)
            try:
                self._read[collection] = [parser.validate_python(_data(one)) for one in records]
            except ValidationError as error:
                raise SchemaChanged(collection, error) from error
        return self._read[collection]


@dataclass(frozen=True)
class Collection(Generic[RecordType]):
    """An attribute of a Memory: the records of a collection."""

    name: str
    record_class: type[RecordType]

    @overload
    def __get__(self, memory: None, owner: type[Memory]) -> "Collection[RecordType]": ...
    @overload
    def __get__(self, memory: Memory, owner: type[Memory]) -> list[RecordType]: ...
    def __get__(
        self, memory: Memory | None, owner: type[Memory]
    ) -> "Collection[RecordType] | list[RecordType]":
        """Return the records, of an instance."""
        return self if memory is None else memory.records_of(self.name, self.record_class)


@dataclass(frozen=True)
class Singleton(Generic[RecordType]):
    """An attribute of a Memory: the only record of its kind, or None."""

    name: str
    record_class: type[RecordType]

    @overload
    def __get__(self, memory: None, owner: type[Memory]) -> "Singleton[RecordType]": ...
    @overload
    def __get__(self, memory: Memory, owner: type[Memory]) -> RecordType | None: ...
    def __get__(
        self, memory: Memory | None, owner: type[Memory]
    ) -> "Singleton[RecordType] | RecordType | None":
        """Return the record, of an instance."""
        if memory is None:
            return self
        return next(iter(memory.records_of(self.name, self.record_class)), None)


def _data(record: TypedRecord) -> dict[str, Any]:
    """Return the fields of a record's class, with their values as JSON."""
    fields = {name: without_tags(value) for name, value in record.fields.items()}
    return {**fields, "key": record.key, "sources": record.sources}
