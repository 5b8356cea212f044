"""Find secrets and personal data in a text, by the patterns of detect-secrets and Presidio.

A found secret is not verified with its service, and no model is loaded: names of people and
places are not found. The libraries are imported when a workspace first needs them.
"""

import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from memory.kernel.refused import Refused

SECRET = "secret"  # noqa: S105  # nosec B105 # the name of a kind
# Some of the libraries' patterns take quadratic time, and block all other threads meanwhile: so a
# text is read in pieces. Nothing that is shorter than the overlap is missed between two of them.
_PIECE, _OVERLAP = 1024, 512
# Presidio's own score for what only looks like one of its entities.
_MIN_SCORE = 0.3
_MIN_PHONE_DIGITS = 7
_DIGIT = re.compile(r"\d")
# Keys of a newer form than those that detect-secrets knows, and this server's own.
_NEWER_KEYS = re.compile(
    r"\b(?:sk-(?:ant|proj|svcacct|admin|or)-|github_pat_|AIza|hf_|uac_[0-9a-f]+_)[\w-]{20,}"
)
# The rest of a key whose pattern ends before the key does.
_REST_OF_KEY = re.compile(r"[\w+/=-]*(?:\.[\w+/=-]+)*")


@dataclass(frozen=True, order=True)
class Span:
    """A part of a text, and the kind of sensitive content that it is."""

    start: int
    end: int
    kind: str


class NotAdmitted(Refused):
    """Content may not enter, and nothing was stored."""


class CheckTookTooLong(NotAdmitted):
    """A text could not be checked in time."""

    status = 413

    def __init__(self) -> None:
        super().__init__(
            "Checking this for secrets and personal data takes too long, and nothing was stored."
            " Send it in parts."
        )


class CannotCheck(NotAdmitted):
    """The server lacks what is needed to find personal data."""

    status = 503

    def __init__(self) -> None:
        super().__init__(
            "The workspace's content policy concerns personal data, which this server cannot find:"
            " install the extra `personal-data`. Nothing was stored."
        )


def load(kinds: Collection[str]) -> None:
    """Import what finds these kinds; raises CannotCheck if it is not installed."""
    if SECRET in kinds:
        _secret_patterns()
    if {*kinds} - {SECRET}:
        _recognizers()


def find(text: str, kinds: Collection[str], deadline: float) -> list[Span]:
    """Return the parts of the text that are of these kinds, in order and without overlaps.

    Raises CheckTookTooLong once the thread has used processor time up to the deadline, and
    CannotCheck if a kind needs a library that is not installed.
    """
    found: list[Span] = []
    if SECRET in kinds:
        found += [Span(*match.span(), SECRET) for match in _private_key().finditer(text)]
    for offset in range(0, max(len(text) - _OVERLAP, 1), _PIECE):
        piece = text[offset : offset + _PIECE + _OVERLAP]
        for kind in kinds:
            if time.thread_time() > deadline:
                raise CheckTookTooLong
            parts = _secrets_in(piece) if kind == SECRET else _personal_data_in(piece, kind)
            found += [Span(offset + start, offset + end, kind) for start, end in parts]
    return _without_overlaps(text, sorted(found))


def _without_overlaps(text: str, spans: Sequence[Span]) -> list[Span]:
    """Join overlapping spans, and let each secret end where the key does that it is part of."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and span.end <= last.end:
            continue
        end = span.end
        if span.kind == SECRET and (rest := _REST_OF_KEY.match(text, end)):
            end = rest.end()
        if last and span.start < last.end:
            joined[-1] = Span(last.start, end, last.kind)
        else:
            joined.append(Span(span.start, end, span.kind))
    return joined


def _secrets_in(piece: str) -> Iterator[tuple[int, int]]:
    for pattern in (*_secret_patterns(), _NEWER_KEYS):
        for match in pattern.finditer(piece):
            yield match.span()


@cache
def _secret_patterns() -> Sequence[re.Pattern[str]]:
    """Return the patterns of keys and tokens that have a form of their own.

    The plugins that judge by entropy, or by the words before a value, find too much in prose.
    """
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.ip_public import IPPublicDetector

    plugins: Any = get_mapping_from_secret_type_to_class().values()
    return [
        pattern
        for plugin in plugins
        if issubclass(plugin, RegexBasedDetector) and plugin is not IPPublicDetector
        for pattern in plugin().denylist
    ]


@cache
def _private_key() -> re.Pattern[str]:
    """Return the pattern of a whole private key; the plugin's is that of its first line."""
    from detect_secrets.plugins.private_key import PrivateKeyDetector

    begins = "|".join(pattern.pattern for pattern in PrivateKeyDetector().denylist)
    ends = r"END [A-Z0-9 ]{0,40}KEY(?: BLOCK)?-{0,5}"
    return re.compile(rf"-{{0,5}}(?:{begins}).*?(?:{ends}|\Z)", re.DOTALL)


def _personal_data_in(piece: str, kind: str) -> Iterator[tuple[int, int]]:
    if kind == "phone_number" and len(_DIGIT.findall(piece)) < _MIN_PHONE_DIGITS:
        return
    for result in _recognizers()[kind].analyze(piece, [], None):
        if result.score >= _MIN_SCORE:
            yield result.start, result.end


@cache
def _recognizers() -> Mapping[str, Any]:
    """Map each kind of personal data to Presidio's recognizer; raises CannotCheck without it."""
    # It logs texts that it cannot validate.
    logging.getLogger("presidio-analyzer").disabled = True
    try:
        import tldextract
        from presidio_analyzer import predefined_recognizers
    except ImportError:
        raise CannotCheck from None

    # Of itself, it would fetch the list of domains from the internet.
    extract = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
    emails = predefined_recognizers.EmailRecognizer()
    emails.validate_result = lambda text: bool(extract(text).fqdn)
    return {
        "email_address": emails,
        "phone_number": predefined_recognizers.PhoneRecognizer(),
        "credit_card": predefined_recognizers.CreditCardRecognizer(),
        "iban_code": predefined_recognizers.IbanRecognizer(),
        "ip_address": predefined_recognizers.IpRecognizer(),
    }
