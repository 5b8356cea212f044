"""Wording: some of a text's words must occur in the entries that are cited for the text.

Dates, numbers and codes are compared one by one (`values_in_entries`). At least a quarter of all
other words must occur in the entries: of the true facts from recorded conversations, all but four
in a thousand pass this check; of random snippets, twelve out of thirteen fail it. The entry's
speaker and timestamp count as words of the entry, since "Gina is well" may be an entire fact.

A translation shares few words with what it cites: it passes if its dates and numbers are in the
entries, and at least one of them or a name is. Any other translation or paraphrase has to be marked
as derived, with a reason that quotes an entry, because a model that quotes nothing may not have
read the entry. Both are counted.
"""

import datetime
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from functools import lru_cache

from memory.language.stems import Stems
from memory.project.values import PartialDate, Struct, Value
from memory.recall.search.words import terms, terms_of_day
from workers.findings import Finding
from workers.grounding.content_words import content_words, is_sign
from workers.grounding.values_in_entries import (
    LABEL_WORDS,
    Claim,
    Source,
    any_starts_with,
    is_translation,
    plain,
    words_of,
)

# At least one word in this many must occur in the entries that are cited for a text.
ONE_IN = 4
# A stem of at least this length also matches longer words that begin with it, to accommodate
# languages other than English.
LONG_STEM = 5
# Words that refer to the user in facts, where the user said "I".
_USER = frozenset(terms("user users"))
# Finding code for a paraphrase that is marked as derived and accepted.
PARAPHRASE = "paraphrase"
# Finding code for a text in another language than the entries, which have all its values.
TRANSLATION = "translation"
FIX = (
    "cite the entry that supports the text; if it is a paraphrase or in another language, name the"
    " field in `derived` with a reason that quotes the entry:"
    " \"German: 'Ich koche gern Nudeln'\""
)
# Shortest quotation from an entry, in words or, for scripts without spaces, in characters.
QUOTED_WORDS = 3
QUOTED_CHARACTERS = 6


class Wording:
    """The combined words of several entries."""

    def __init__(self, sources: Iterable[Source], zone: zoneinfo.ZoneInfo) -> None:
        self._terms: set[str] = set()
        self._days: set[str] = set()
        self._texts: list[str] = []
        self._stems = Stems()
        for source in sources:
            self._texts.append(plain(source.whole))
            self._terms |= _terms_of(source.whole)
            self._stems.add(source.whole, words_of(source.whole))
            self._days |= set(terms_of_day(source.at.astimezone(zone).date()))
        self._in_order = sorted(self._terms)

    def supports(self, text: str) -> bool:
        """Return whether the entries contain enough of a text's terms.

        A text without terms has to occur in full. The entries' dates count as terms, but are not
        enough on their own: every entry has a date.
        """
        wanted = _terms_of(text)
        if not wanted:
            words = _spaced(text)
            return any(
                words in _spaced(entry_text) if words.strip() else plain(text) in entry_text
                for entry_text in self._texts
            )
        present = set(filter(self._has, wanted))
        return bool(present) and ONE_IN * len(present | (wanted & self._days)) >= len(wanted)

    def is_quoted_in(self, reason: str) -> bool:
        """Return whether a text repeats consecutive words of an entry, or a short entry in full."""
        given = _tokens(reason)
        for tokens in map(_tokens, self._texts):
            least = (
                QUOTED_CHARACTERS if any(is_sign(token[0]) for token in tokens) else QUOTED_WORDS
            )
            size = min(least, len(tokens))
            common = _runs(tokens, size) & _runs(given, size)
            if any(content_words(run) or any(map(is_sign, "".join(run))) for run in common):
                return True
        return False

    def _has(self, term: str) -> bool:
        if term in self._terms or self._stems.have(term):
            return True
        if len(term) < LONG_STEM or term.isdecimal():
            return False
        begins = any(term[:length] in self._terms for length in range(LONG_STEM, len(term)))
        return begins or any_starts_with(self._in_order, term[: max(LONG_STEM, len(term) - 2)])


def unsaid_texts(
    claims: Iterable[Claim], sources: Mapping[int, Source], time_zone: str
) -> Iterator[Finding]:
    """Yield a finding for each text that is not supported by the entries cited for it.

    A sentence has to be supported on its own. A name or label in a new record, such as
    `category="drug"`, passes if anything in the record is supported (an entry's date doesn't count
    as support, since every entry has one); `changed_values` judges the labels in an updated record.
    If an edit marks a field as derived, with a reason that quotes an entry, the finding does not
    block.
    """
    zone = zoneinfo.ZoneInfo(time_zone)
    for claim in claims:
        texts = {name: [*texts_of(value)] for name, value in claim.fields.items()}
        texts = {name: some for name, some in texts.items() if some}
        if not texts:
            continue
        cited = [sources[seq] for seq in claim.sources if seq in sources]
        wording = Wording(cited, zone)
        days = {source.at.astimezone(zone).date() for source in cited}
        unsaid = {name for name, some in texts.items() if not all(map(wording.supports, some))}
        labels = {name for name, some in texts.items() if all(map(_is_label, some))}
        if (
            not claim.is_new
            or any(_is_telling(text) for name in texts.keys() - unsaid for text in texts[name])
            or any(_counts(value, days) for value in claim.fields.values())
        ):
            unsaid -= labels
        else:
            unsaid |= labels
        for name in sorted(unsaid):
            translates = all(is_translation(cited, text, zone) for text in texts[name])
            yield _finding(claim, name, wording, translates=translates)


def _counts(value: Value, days: Set[datetime.date]) -> bool:
    """Return whether a value is of a kind that counts as support for a record's labels.

    Such values are numbers, times, and dates other than the days of the entries themselves.
    """
    if isinstance(value, datetime.date):
        day = value.date() if isinstance(value, datetime.datetime) else value
        return day not in days
    if isinstance(value, PartialDate):
        return not any(value.bounds[0] <= day <= value.bounds[1] for day in days)
    numbers = (int, float, Decimal, datetime.time)
    return isinstance(value, numbers) and not isinstance(value, bool)


def texts_of(value: Value) -> Iterator[str]:
    """Yield the texts in a value."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from texts_of(item)
        case Struct(fields=fields):
            for item in fields.values():
                yield from texts_of(item)


def _is_telling(text: str) -> bool:
    """Return whether a text contains words other than those that could occur in any text."""
    words = words_of(text)
    return bool(_terms_of(text)) or not words or any(map(str.isdecimal, words))


def _spaced(text: str) -> str:
    return f" {' '.join(words_of(text))} "


def _is_label(text: str) -> bool:
    return len(text.split()) <= LABEL_WORDS


@lru_cache(maxsize=1 << 12)
def _terms_of(text: str) -> frozenset[str]:
    """Return the meaningful terms of a text: no single letters, and no words for the user."""
    return frozenset(
        term for term in terms(text) if (len(term) > 1 or not term.isascii()) and term not in _USER
    )


def _tokens(text: str) -> list[str]:
    """Return the words of a text; words in a script without spaces are split into characters."""
    return [
        token for word in words_of(text) for token in (word if any(map(is_sign, word)) else [word])
    ]


def _runs(tokens: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)}


def _finding(claim: Claim, name: str, wording: Wording, *, translates: bool) -> Finding:
    cited = ", ".join(map(str, claim.sources)) or "none"
    subject = f"field {name} of {'.'.join(claim.record_id)}"
    reason = claim.derived.get(name)
    is_paraphrase = reason is not None and wording.is_quoted_in(reason)
    if is_paraphrase or translates:
        does, why = ("paraphrases", f": {reason}") if is_paraphrase else ("translates", "")
        return Finding(
            code=PARAPHRASE if is_paraphrase else TRANSLATION,
            message=f"{subject} {does} the entries that the record cites ({cited}){why}",
            record=claim.record_id,
            field=name,
            entry=max(claim.sources, default=None),
            blocking=False,
        )
    return Finding(
        code="ungrounded_text",
        message=f"{subject} shares too few words with the entries that the record cites ({cited})"
        + ("" if reason is None else ", and its reason in `derived` quotes none of them"),
        fix=FIX,
        record=claim.record_id,
        field=name,
        entry=max(claim.sources, default=None),
    )
