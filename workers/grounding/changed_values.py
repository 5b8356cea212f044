"""Updates: a value in a record may change only if an entry that the edit cites supports the change.

An entry supports the change if the entry names the record, or contains the old value. An entry that
contains the new value also supports the change but, unless the field had no value before, the entry
must name the field as well. Values that a constraint reads can silence or raise alerts, so the
rules are stricter for them: an entry must name the record or, if the field had no value before,
contain the new value and name the field; a new text must occur in an entry or be marked as derived;
and to empty a field, it isn't enough that an entry names the record's class or collection. Entries
that the record already relied on, and the entries these were derived from, name the record anyway,
so naming it doesn't count as support from them.
"""

import datetime
import zoneinfo
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal

from memory.project.literals import same
from memory.project.names import snake
from memory.project.values import EnumMember, PartialDate, Record, RecordId, Ref, Struct, Value
from workers.findings import Finding
from workers.grounding.content_words import content_words, names_one_of, shared_words
from workers.grounding.values_in_entries import Source, supports
from workers.grounding.wording_in_entries import Wording, texts_of

# An entry that shares this many words with an entry that the record relies on is treated as naming
# the record.
MIN_SHARED = 2
# Maximum number of a record's entries, newest first, that a cited entry is compared with.
MAX_RESTED = 20
# Smaller numbers occur in too many contexts to identify a record.
TELLING_NUMBER = 100
# Fields that name people: a person's name fits every record about that person, so it identifies no
# particular record.
WHOSE = frozenset(
    {
        *("person", "people", "owner", "holder", "patient", "member", "members", "who", "whose"),
        *("for_whom", "with_whom", "user", "child", "employee", "participant", "participants"),
        *("passenger", "passengers", "traveler", "travelers", "traveller", "travellers"),
    }
)


@dataclass(frozen=True)
class RecordUpdate:
    """A record before and after the edits, and the entries that the edits cite for each field.

    `fields` are the fields that the record's class has now; `rested_on` are the entries that the
    record relied on before, plus the entries these were derived from.
    """

    record_id: RecordId
    before: Record
    after: Record
    cited: Mapping[str, Sequence[int]]
    fields: Collection[str] = ()
    rested_on: Set[int] = frozenset()
    derived: Mapping[str, str] = field(default_factory=dict)


def names_record(
    source: Source,
    record_id: RecordId,
    record: Record,
    rests_on: Iterable[Source] = (),
    *,
    by_class: bool = True,
) -> bool:
    """Return whether an entry names a record.

    An entry names a record if it has a content word from the record's class, collection, key or
    texts, or if it shares several words with an entry that the record relies on. Unless `by_class`,
    the words of class and collection, which name all records of their kind, don't count.
    """
    owner_words = (
        text for name, value in record.fields.items() if name in WHOSE for text in texts_of(value)
    )
    kind = [snake(record.class_name), record_id.collection]
    texts = [
        record_id.key,
        *(text for value in record.fields.values() for text in texts_of(value)),
        *(kind if by_class else ()),
    ]
    without = content_words([*owner_words, *(() if by_class else kind)]).keys()
    return names_one_of(source.text_and_data, texts, without=without) or any(
        shared_words(source.text_and_data, other.text_and_data, without=without) >= MIN_SHARED
        for other in list(rests_on)[-MAX_RESTED:]
    )


def ungrounded_updates(
    updates: Iterable[RecordUpdate],
    sources: Mapping[int, Source],
    read: Collection[str],
    time_zone: str,
    *,
    is_of_model: bool = True,
) -> Iterator[Finding]:
    """Yield a finding for each changed value that none of the entries cited for it support.

    `sources` maps seq to entry; a cited entry that is missing from `sources` supports nothing.
    `read` contains the names of the fields that constraints read. The wording of a text needs
    support only if a language model wrote it (`is_of_model`).
    """
    zone = zoneinfo.ZoneInfo(time_zone)
    for update in updates:
        for name, (old, new) in _changed(update).items():
            cited = [sources[seq] for seq in update.cited.get(name, ()) if seq in sources]
            rests_on = [sources[seq] for seq in sorted(update.rested_on) if seq in sources]
            is_read = name in read
            by_class = not (is_read and new is None)
            is_named = any(
                names_record(source, update.record_id, update.before, rests_on, by_class=by_class)
                or (_is_telling(old) and supports(source, old, zone))
                for source in cited
                if source.seq not in update.rested_on
            )
            is_said = any(_supports(source, old, new, zone) for source in cited)
            names_field = any(
                names_one_of(source.text_and_data, [name.replace("_", " ")]) for source in cited
            )
            shows_words = is_of_model and is_read and any(texts_of(new))
            if is_read and old is not None:
                is_grounded = is_named
            elif is_read or old is not None:
                is_grounded = is_named or (is_said and names_field)
            else:
                is_grounded = is_named or is_said
            if not is_grounded:
                yield _unnamed(update, name, is_read=is_read)
            elif shows_words and not (is_said or name in update.derived):
                yield _unsaid(update, name)


def _changed(update: RecordUpdate) -> dict[str, tuple[Value, Value]]:
    """Return the changed fields, each with the old and new values.

    A value taken over from a field that no longer exists isn't a change: the field was renamed.
    """
    old, new = update.before.fields, update.after.fields
    gone = {name: value for name, value in old.items() if name not in update.fields}
    changed = {
        name: (old.get(name), new.get(name))
        for name in {**old, **new}
        if not same(old.get(name), new.get(name))
    }
    return {
        name: values
        for name, values in changed.items()
        if not (name in gone and values[0] in new.values())
        and not (name not in old and values[1] in gone.values())
    }


def _is_telling(value: Value) -> bool:
    """Return whether people identify things by values like this: a date, time or large number."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float | Decimal):
        size = Decimal(str(value)).copy_abs()  # unlike abs(), it neither rounds nor overflows
        return size.is_finite() and size >= TELLING_NUMBER
    return isinstance(value, datetime.date | datetime.time | PartialDate)


def _supports(source: Source, old: Value, new: Value, zone: zoneinfo.ZoneInfo) -> bool:
    """Return whether an entry contains a new value.

    No entry contains None or a boolean: nobody writes "none", "yes" or "no" for such values.
    """
    match new:
        case None | bool():
            return False
        case str():
            return supports(source, new, zone) and Wording([source], zone).supports(new)
        case EnumMember(member=member):
            return Wording([source], zone).supports(member.replace("_", " ").lower())
        case Ref(key=key):
            return names_one_of(source.text_and_data, [key])
        case list():
            old_items = old if isinstance(old, list) else []
            added = [item for item in new if item not in old_items]
            is_kept = all(item in new for item in old_items)
            return is_kept and all(_supports(source, None, item, zone) for item in added)
        case Struct(fields=fields):
            parts = old.fields if isinstance(old, Struct) else {}
            return all(
                _supports(source, parts.get(name), value, zone)
                for name, value in fields.items()
                if value is not None and not same(parts.get(name), value)
            )
        case _:
            return supports(source, new, zone)


def _unnamed(update: RecordUpdate, name: str, *, is_read: bool) -> Finding:
    what = "names the record" if is_read else "names the record, or the field with its value"
    why = ", which constraints read," if is_read else ""
    return Finding(
        code="ungrounded_update",
        message=f"field {name} of {'.'.join(update.record_id)}{why} would change, and no entry that"
        f" the edit cites ({_cited(update, name)}) {what}, apart from the entries that the record"
        " is based on",
        fix="cite the entry that supports the change, or leave the value as it is",
        record=update.record_id,
        field=name,
        entry=max(update.cited.get(name, ()), default=None),
    )


def _unsaid(update: RecordUpdate, name: str) -> Finding:
    return Finding(
        code="ungrounded_update",
        message=f"field {name} of {'.'.join(update.record_id)}, which constraints read, would"
        f" change to a text that is not in any entry that the edit cites ({_cited(update, name)})",
        fix="cite the entry that contains the text or, if it follows from the cited entries, name"
        " the field in `derived` with the reason",
        record=update.record_id,
        field=name,
        entry=max(update.cited.get(name, ()), default=None),
    )


def _cited(update: RecordUpdate, name: str) -> str:
    return ", ".join(map(str, update.cited.get(name, ()))) or "none"
