"""Names in a project: which ones are allowed, and how default names are generated.

Class names begin with an upper-case letter and all other names (of domains, collections and
constraints) are lower case, so the two kinds never clash in a file. A reserved name that comes from
a client's data is escaped with a trailing underscore; a reserved name that somebody chose
deliberately is rejected.
"""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from memory.kernel.texts import with_few_marks
from memory.project.errors import EditError

# Builtins added by `site`, which differ between interpreters.
_SITE = {"copyright", "credits", "exit", "license", "quit"}
_BUILTINS = {name for name in dir(builtins) if not name.startswith("_")} - _SITE
_MODULES = {"builtins", "dataclasses", "datetime", "decimal", "domains", "enum", "typing", "uac"}
# Names that queries can use without an import and that constraints import.
_QUERY = {
    *("now", "today", "date", "timedelta", "defaultdict", "math", "statistics", "re"),
    *("itertools", "info", "warning", "critical"),
}
_LIBRARY = {
    *("Record", "Ref", "PartialDate", "Alert", "Severity", "TYPE_CHECKING", "Iterator"),
    *("Counter", "Decimal", "Any", "Optional", "List"),
}

RESERVED_LOWER = frozenset(_BUILTINS | _MODULES | _QUERY)
RESERVED_CLASSES = frozenset(_BUILTINS | _LIBRARY)
# A field may be called `list` or `date`, but must not shadow a name that schemas rely on.
RESERVED_FIELDS = frozenset({"key", "sources", "set_aside", "Ref", "PartialDate", "Any"} | _MODULES)

# The words for signs that begin a key in a caller's data and tell it from other keys.
_SIGNS = {"+": "plus", "-": "minus", "$": "dollar", "@": "at", "#": "number", "%": "percent"}
_SHARD_SUFFIX = re.compile(r"_[0-9]{4,}$")
_WORD_START = re.compile(r"(?<=[^\W_])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])")
MAX_LENGTH = 100
# The domain for typed entries that don't specify a domain.
DEFAULT_DOMAIN = "general"


def check_class_name(name: str, what: str = "class") -> None:
    """Reject an invalid name for a class or enum."""
    _check_identifier(name, what, "write it like `MedicalVisit`")
    if name[0] != name[0].upper() or name.startswith("_"):
        suggestion = camel(name) or "MedicalVisit"
        raise EditError(
            "bad_name",
            f"{what} {name!r} must begin with an upper-case letter: write {suggestion!r}",
        )
    if name in RESERVED_CLASSES or keyword.iskeyword(name):
        raise EditError(
            "bad_name", f"{what} {name!r} is reserved by Python or uac: choose another name"
        )


def check_lower_name(name: str, what: str) -> None:
    """Reject an invalid name for a domain, collection or constraint."""
    _check_identifier(name, what, "write it like `medical_visits`")
    if name != name.lower() or name.startswith("_"):
        suggestion = snake(name).strip("_") or "medical_visits"
        raise EditError(
            "bad_name",
            f"{what} {name!r} must be lower case and begin with a letter: write {suggestion!r}",
        )
    if name in RESERVED_LOWER or keyword.iskeyword(name):
        raise EditError(
            "bad_name", f"{what} {name!r} is reserved by Python or uac: choose another name"
        )
    if _SHARD_SUFFIX.search(name):
        raise EditError(
            "bad_name", f"{what} {name!r} ends like the name of a shard: drop the number"
        )


def check_field_name(name: str, where: str) -> None:
    """Reject a field name that is invalid or that `field_name_for` would change."""
    _check_identifier(name, f"field of {where}", "write it like `started_on`")
    escaped = field_name_for(name)
    if escaped != name:
        raise EditError("bad_name", f"field {name!r} of {where} is reserved: write {escaped!r}")


@lru_cache(maxsize=4096)
def field_name_for(key: str) -> str:
    """Return the field name for a key in a caller's data, which may be any text.

    An identifier keeps its name, but `class` becomes `class_` and `_id` becomes `id_`, because
    leading underscores are reserved for the system. Otherwise `Amount (EUR)` becomes `amount_eur`,
    `+1` becomes `plus_1` and `2fa` becomes `field_2fa`.
    """
    normal = unicodedata.normalize("NFKC", with_few_marks(key))
    bare = normal.lstrip("_")
    if not bare.isidentifier() or len(bare) > MAX_LENGTH:
        return _identifier_of(normal)
    if bare != normal:
        return bare.rstrip("_") + "_"
    return _unreserved(bare)


def _identifier_of(text: str) -> str:
    """Return the words of a text as an identifier."""
    sign = _SIGNS.get(text[:1], "")
    letters = (char if f"_{char}".isidentifier() else " " for char in text.lower())
    words = " ".join([sign, *"".join(letters).replace("_", " ").split()]).split()
    name = "_".join(words)
    if not name.isidentifier():
        name = f"field_{name}".rstrip("_")
    # Lower case can undo the normal form; leave room for the number that makes the name unique.
    name = unicodedata.normalize("NFKC", name)[: MAX_LENGTH - 10].rstrip("_")
    return _unreserved(name) if name.isidentifier() else "field"


def _unreserved(name: str) -> str:
    return f"{name}_" if name in RESERVED_FIELDS or keyword.iskeyword(name) else name


def check_enum_member(name: str, where: str) -> None:
    """Reject an invalid name for an enum member."""
    _check_identifier(name, f"member of {where}", "write it like `RED`")
    if name.startswith("_") or keyword.iskeyword(name) or name in {"mro", "name", "value"}:
        raise EditError("bad_name", f"member {name!r} of {where} is reserved: choose another name")


def check_key(key: str, what: str = "key") -> None:
    """Reject a record key that is empty or too long, or contains control characters."""
    if not key or len(key) > 200 or any(unicodedata.category(c) in {"Cc", "Cs"} for c in key):
        raise EditError(
            "bad_key", f"{what} {key!r} must have 1 to 200 characters and no control characters"
        )


def snake(name: str) -> str:
    """Return `medical_visit` for `MedicalVisit`."""
    return _WORD_START.sub("_", name).lower()


def key_of_entry(class_name: str, seq: int) -> str:
    """Return the key generated for a record whose entry doesn't provide one: `trip-41`."""
    return f"{snake(class_name)}-{seq}"


def spaced(name: str) -> str:
    """Return `drug class` for `drug_class`, and `Medical Visit` for `MedicalVisit`."""
    return _WORD_START.sub(" ", name).replace("_", " ").strip()


def camel(name: str) -> str:
    """Return `MedicalVisit` for `medical_visit`."""
    words = (word[:1].upper() + word[1:] for word in re.split(r"[\W_]+", name))
    return unicodedata.normalize("NFKC", with_few_marks("".join(words)))


@lru_cache(maxsize=1024)
def singular(word: str) -> str:
    """Return `flight_leg` for `flight_legs`; words that aren't plurals are unchanged."""
    head, last = _split_last_word(word)
    base = _inflect().singular_noun(last) if _looks_plural(last) else last
    return head + str(base).lower()


@lru_cache(maxsize=1024)
def default_collection(class_name: str) -> str:
    """Return `medical_visits` for `MedicalVisit`, escaped if the name is reserved."""
    head, last = _split_last_word(snake(class_name))
    plural = last if _looks_plural(last) else str(_inflect().plural_noun(last)).lower()
    # Leave room for the suffix that makes the name unique.
    return escape_collection((head + plural)[: MAX_LENGTH - 10])


def escape_collection(name: str) -> str:
    """Return a collection's name, with a trailing underscore if it is reserved by Python or uac."""
    return f"{name}_" if name in RESERVED_LOWER or keyword.iskeyword(name) else name


def unused(name: str, taken: Collection[str]) -> str:
    """Return `name` or, if it is taken, the first free name among `name2`, `name3` and so on."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}{number}"
    return candidate


def _check_identifier(name: str, what: str, fix: str) -> None:
    if len(name) > MAX_LENGTH:
        raise EditError(
            "bad_name",
            f"{what} {name[:40]!r}... has {len(name)} characters: at most {MAX_LENGTH} are allowed",
        )
    if not name.isidentifier() or unicodedata.normalize("NFKC", with_few_marks(name)) != name:
        raise EditError("bad_name", f"{what} {name!r} is not a valid Python name: {fix}")


def _split_last_word(name: str) -> tuple[str, str]:
    head, separator, last = name.rpartition("_")
    return head + separator, last


def _looks_plural(word: str) -> bool:
    # inflect mistakes "bus" and "analysis" for the plurals of "bu" and "analysi".
    if word.endswith(("us", "ss", "is")) or not word or word in _singulars():
        return False
    base = _inflect().singular_noun(word)
    return bool(base) and len(str(base)) > 2 and _inflect().plural_noun(base) == word


def _inflect() -> Any:
    from memory.project.english import ENGINE  # slow to import and rarely needed

    return ENGINE


def _singulars() -> Collection[str]:
    from memory.project.english import NOUNS

    return NOUNS.keys()
