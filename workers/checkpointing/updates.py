"""Updates: a value of a record changes only if an entry that the edit cites speaks of it.

That is one that names the record, or says its old value. One that says the new value does for a
field of which nothing was told, and one that names the field with it for any other; but a value
that a constraint reads silences and raises alerts: there it takes the field with the value where
nothing was told, and else the record, and a text is said or declared as derived. An entry that the
record rested on before, or that such an entry was derived from, names it anyhow, and says of no
change.
"""

import datetime
import zoneinfo
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal

from memory.project.literals import same
from memory.project.names import snake
from memory.project.values import EnumMember, PartialDate, Record, RecordId, Ref, Struct, Value
from workers.checkpointing.findings import Finding
from workers.checkpointing.grounding import Source, says
from workers.checkpointing.wording import Wording, texts_of
from workers.checkpointing.words import content_words, names_one_of, shared_words

# An entry that shares so many words with one that the record rests on speaks of the same.
MIN_SHARED = 2
# Of what a record rests on, so many of the newest are compared.
MAX_RESTED = 20
# Smaller ones are said of anything.
TELLING_NUMBER = 100
# Fields that say whose something is: by such a name it cannot be told from all else of that person.
WHOSE = frozenset(
    {
        *("person", "people", "owner", "holder", "patient", "member", "members", "who", "whose"),
        *("for_whom", "with_whom", "user", "child", "employee", "participant", "participants"),
        *("passenger", "passengers", "traveler", "travelers", "traveller", "travellers"),
    }
)


@dataclass(frozen=True)
class Update:
    """A record before and after, and of its fields the entries that the edits cite which set them.

    `fields` are those that its class has by now; `rested_on` the entries that it rested on before,
    with those that they were derived from.
    """

    record_id: RecordId
    before: Record
    after: Record
    cited: Mapping[str, Sequence[int]]
    fields: Collection[str] = ()
    rested_on: Set[int] = frozenset()
    derived: Mapping[str, str] = field(default_factory=dict)


def names_record(
    source: Source, record_id: RecordId, record: Record, rests_on: Iterable[Source] = ()
) -> bool:
    """Tell whether an entry names a record: by a content word of its class, collection, key or
    texts, or by several that an entry has too which the record rests on.
    """
    whose = frozenset(
        content_words(
            text
            for name, value in record.fields.items()
            if name in WHOSE
            for text in texts_of(value)
        )
    )
    texts = [
        " ".join([snake(record.class_name), record_id.collection, record_id.key]),
        *(text for value in record.fields.values() for text in texts_of(value)),
    ]
    return names_one_of(source.said, texts, without=whose) or any(
        shared_words(source.said, other.said, without=whose) >= MIN_SHARED
        for other in list(rests_on)[-MAX_RESTED:]
    )


def ungrounded_updates(
    updates: Iterable[Update],
    sources: Mapping[int, Source],
    read: Collection[str],
    time_zone: str,
    *,
    is_of_model: bool = True,
) -> Iterator[Finding]:
    """Yield a finding for each changed value of which no entry speaks that is cited for it.

    `sources` are the entries by their seq; one that is not there says nothing. `read` are the names
    of fields that constraints read. The words of texts are a language model's to show.
    """
    zone = zoneinfo.ZoneInfo(time_zone)
    for update in updates:
        for name, (old, new) in _changed(update).items():
            cited = [sources[seq] for seq in update.cited.get(name, ()) if seq in sources]
            rests_on = [sources[seq] for seq in sorted(update.rested_on) if seq in sources]
            is_named = any(
                names_record(source, update.record_id, update.before, rests_on)
                or (_is_telling(old) and says(source, old, zone))
                for source in cited
                if source.seq not in update.rested_on
            )
            is_said = any(_says(source, old, new, zone) for source in cited)
            names_field = any(
                names_one_of(source.said, [name.replace("_", " ")]) for source in cited
            )
            is_read = name in read
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


def _changed(update: Update) -> dict[str, tuple[Value, Value]]:
    """Return the fields whose value is another one now, each with both.

    A value that stood in a field that is gone was renamed with it, and is the same.
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
    """Tell whether a value is one by which people name what they mean: a date, a larger number."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float | Decimal):
        size = Decimal(str(value)).copy_abs()  # unlike abs(), it neither rounds nor overflows
        return size.is_finite() and size >= TELLING_NUMBER
    return isinstance(value, datetime.date | datetime.time | PartialDate)


def _says(source: Source, old: Value, new: Value, zone: zoneinfo.ZoneInfo) -> bool:
    """Tell whether an entry says a new value; nobody says that there is none, or yes or no."""
    match new:
        case None | bool():
            return False
        case str():
            return says(source, new, zone) and Wording([source], zone).says(new)
        case EnumMember(member=member):
            return Wording([source], zone).says(member.replace("_", " ").lower())
        case Ref(key=key):
            return names_one_of(source.said, [key])
        case list():
            known = old if isinstance(old, list) else []
            added = [item for item in new if item not in known]
            is_kept = all(item in new for item in known)
            return is_kept and all(_says(source, None, item, zone) for item in added)
        case Struct(fields=fields):
            parts = old.fields if isinstance(old, Struct) else {}
            return all(
                _says(source, parts.get(name), value, zone)
                for name, value in fields.items()
                if value is not None and not same(parts.get(name), value)
            )
        case _:
            return says(source, new, zone)


def _unnamed(update: Update, name: str, *, is_read: bool) -> Finding:
    what = "names the record" if is_read else "names the record, or the field with its value"
    why = ", which constraints read," if is_read else ""
    return Finding(
        code="ungrounded_update",
        message=f"field {name} of {'.'.join(update.record_id)}{why} would change, and no entry that"
        f" the edit cites besides those it rests on ({_cited(update, name)}) {what}",
        fix="cite the entry that says so, or leave the value as it is",
        record=update.record_id,
        field=name,
        entry=max(update.cited.get(name, ()), default=None),
    )


def _unsaid(update: Update, name: str) -> Finding:
    return Finding(
        code="ungrounded_update",
        message=f"field {name} of {'.'.join(update.record_id)}, which constraints read, would"
        f" change to a text that no entry says which the edit cites ({_cited(update, name)})",
        fix="cite the entry that says it, or, if it follows from what is said, name the field in"
        " `derived` with the reason",
        record=update.record_id,
        field=name,
        entry=max(update.cited.get(name, ()), default=None),
    )


def _cited(update: Update, name: str) -> str:
    return ", ".join(map(str, update.cited.get(name, ()))) or "none"
