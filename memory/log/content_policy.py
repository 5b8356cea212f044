"""What a workspace does with secrets and personal data that are about to enter it.

`SettingsOverrides.content_policy` says, for each kind, whether it is stored, masked, refused, or
stored in typed data only. All content passes here before anything is written: entries in
`memory.log.entry_log.append`, proposals, imports and the source of a backtest where their runs are
queued.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from memory.kernel.canonical import canonical_json
from memory.kernel.settings.environment import REFUSED, SENSITIVE, TYPED_ONLY
from memory.log import sensitive_text

# How many seconds of processor time checking one request's content may take.
MAX_SECONDS = 10.0
MAX_NAMED = 20
MAX_FIELD = 200
# Digits of an id, or of a number, may be anything: other kinds would be found where there are none.
_IN_NAMES = {sensitive_text.SECRET, "email_address"}
_IN_NUMBERS = {"credit_card"}
_MARK = re.compile(r"\[masked: (\w{1,40})\]")


@dataclass(frozen=True)
class Finding:
    """Where something sensitive was found, and its kind."""

    field: str
    kind: str


class ContentRefused(sensitive_text.NotAdmitted):
    """The content policy does not allow something; the message never repeats it."""

    status = 422
    problem = "content-refused"

    def __init__(self, found: Mapping[int, Sequence[Finding]], *, is_batch: bool) -> None:
        """Name the fields, by the index of their entry if there are several."""
        self.found = found
        places = [(index, one) for index, findings in found.items() for one in findings]
        named = list(dict.fromkeys(places))
        shown = named[:MAX_NAMED]
        fields = [
            f"{f'entries[{index}].' if is_batch else ''}{one.field} ({one.kind})"
            for index, one in shown
        ]
        more = f" and {len(named) - len(shown)} more" if len(named) > len(shown) else ""
        super().__init__(
            "The workspace's content policy does not allow what was found here:"
            f" {', '.join(fields)}{more}. Nothing was stored. Take it out, and send the rest again."
        )
        errors: dict[str, Any] = {}
        for index, one in shown:
            entry = errors.setdefault(str(index), {}) if is_batch else errors
            text = f"It contains {SENSITIVE[one.kind]}, which are not allowed here."
            entry.setdefault(one.field, []).append(text)
        self.errors = {"entries": errors} if is_batch else errors


class Inspection:
    """Applies a policy to the values of one entry, proposal or import.

    `is_typed` is true of typed data, `can_mask` is false of what would become something else if it
    were masked: names, which identify, and code. Without `may_refuse`, what is refused is masked.
    """

    def __init__(
        self, policy: Mapping[str, str], deadline: float, *, may_refuse: bool = True
    ) -> None:
        self._policy = policy
        self._deadline = deadline
        self._may_refuse = may_refuse
        self.refused: list[Finding] = []

    def value(
        self, value: Any, field: str, *, is_typed: bool = False, can_mask: bool = True
    ) -> Any:
        """Return a JSON value with all that is to be masked; note what is refused."""
        how = {"is_typed": is_typed, "can_mask": can_mask}
        match value:
            case str():
                return self._text(value, field, self._policy, **how)
            case dict():
                return {
                    key: self.value(inner, path, **how)
                    for key, inner in value.items()
                    if (path := self._path(field, key, is_typed=is_typed))
                }
            case list():
                return [
                    self.value(inner, f"{field}[{index}]", **how)
                    for index, inner in enumerate(value)
                ]
            case int() | float() | Decimal() if not isinstance(value, bool):
                written = str(value)
                masked = self._text(written, field, _IN_NUMBERS, **how)
                return value if masked == written else masked
        return value

    def name(self, text: str, field: str, *, is_typed: bool = False) -> None:
        """Note if an id or another name contains what is not allowed."""
        self._text(text, field, _IN_NAMES, is_typed=is_typed, can_mask=False)

    def _path(self, field: str, key: str, *, is_typed: bool) -> str:
        """Return the path of an object's member; if its name is refused, that of the object."""
        before = len(self.refused)
        self.name(key, field, is_typed=is_typed)
        return field if len(self.refused) > before else f"{field}.{key}"[:MAX_FIELD]

    def _text(
        self, text: str, field: str, kinds: Iterable[str], *, is_typed: bool, can_mask: bool
    ) -> str:
        actions = {
            kind: action
            for kind, action in self._policy.items()
            if kind in kinds and not (is_typed and action == TYPED_ONLY)
        }
        if not actions:
            return text
        parts: list[str] = []
        end = 0
        for span in sensitive_text.find(text, actions, self._deadline):
            if self._may_refuse and (actions[span.kind] == REFUSED or not can_mask):
                self.refused.append(Finding(field, span.kind))
            elif can_mask:
                parts += [text[end : span.start], f"[masked: {span.kind}]"]
                end = span.end
        return "".join([*parts, text[end:]])


def deadline(policy: Mapping[str, str]) -> float:
    """Return the thread's processor time at which content must have been checked."""
    sensitive_text.load(policy)  # which may take seconds, once in a process
    return time.thread_time() + MAX_SECONDS


def refuse_sensitive(policy: Mapping[str, str], content: Mapping[str, Any]) -> None:
    """Raise ContentRefused if edits or files contain anything that is not simply stored.

    They are typed, and are not masked: masked code would be other code.
    """
    inspection = Inspection(policy, deadline(policy))
    for name, value in content.items():
        inspection.value(value, name, is_typed=True, can_mask=False)
    if inspection.refused:
        raise ContentRefused({0: inspection.refused}, is_batch=False)


def find_masks(given: Any, stored: Any) -> Iterator[str]:
    """Yield the kinds of what was masked in a value, compared with how it was given.

    Marks that were sent as such are none: somebody may quote an earlier answer.
    """
    if given is not None and stored is not None and given != stored:
        marks = _count_marks(stored) - _count_marks(given)
        yield from (kind for kind in marks if kind in SENSITIVE)


def _count_marks(value: Any) -> Counter[str]:
    return Counter(_MARK.findall(value if isinstance(value, str) else canonical_json(value)))
