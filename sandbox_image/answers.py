"""Validate a child process's answers, which user code may have forged.

The host repeats all of these checks, but it has to discard the whole sandbox over an invalid
answer, because it can't tell which of several constraints is to blame; this process can. Unexpected
fields are rejected, since they could be nested too deeply or be too large for the host.
"""

from collections.abc import Callable
from typing import Any

from .uac import protocol

ANY = {"outcome", "cpu_seconds", "memory_bytes"}
ERROR = {"type", "message", "traceback", "path", "line"}

# A function that takes an item's name and its result, and raises ProtocolError if the result is
# invalid.
Check = Callable[[str, Any], None]


def check_answer(item: str, answer: dict[str, Any], check: Check) -> None:
    """Raise ProtocolError unless `answer` is a valid answer for the item."""
    for used, kinds in (("cpu_seconds", (int, float)), ("memory_bytes", (int,))):
        value = answer.get(used, 0)
        _expect(type(value) in kinds and 0 <= value <= protocol.MAX_INTEGER, f"no {used}")
    outcome = answer.get("outcome")
    if outcome not in protocol.OUTCOMES:
        raise protocol.ProtocolError("no outcome")
    if outcome == "ok":
        _expect(answer.keys() <= ANY | {"result"}, "unexpected fields besides the result")
        check(item, answer.get("result"))
    else:
        quoted = {"result"} if outcome == "alert_limit" else set()
        _expect(answer.keys() <= ANY | {"message", "error"} | quoted, "unexpected fields")
        _expect(_has(answer, message=str), "no message")
        _check_error(answer.get("error"))
        if outcome == "alert_limit":
            check(item, answer.get("result"))


def anything(item: str, result: Any) -> None:
    """Accept any result; the host checks it.

    Used for work that runs before any user code, or that is the only work in its request.
    """


def check_load(item: str, result: Any) -> None:
    """Expect the load time in seconds, which the loaded code may have forged."""
    _expect(type(result) is float and 0 <= result <= protocol.MAX_INTEGER, "no seconds")


def check_evaluation(item: str, result: Any) -> None:
    """Expect a value and the name of its class."""
    _expect(_has(result, type=str) and "value" in result, "no value")
    protocol.check_typed_json(result["value"])


def check_constraint(item: str, result: Any) -> None:
    """Expect one constraint's alerts, and nothing that could be taken for another constraint's."""
    _expect(
        _has(result, alerts=list, left_out=int, takes_now=bool, seconds=float) and len(result) == 4,
        "no alerts",
    )
    for used in ("left_out", "seconds"):
        _expect(0 <= result[used] <= protocol.MAX_INTEGER, f"no {used}")
    for alert in result["alerts"]:
        _expect(_has(alert, severity=str, message=str, evidence=list), "no alert")
        _expect(alert["severity"] in protocol.SEVERITIES, "no severity")
        _expect(isinstance(alert.get("key", 0), (str, type(None))), "no key")
        _expect(len(alert) == 4, "unexpected fields in an alert")
        _expect(alert["evidence"] or alert.get("key"), "an alert with neither evidence nor a key")
        for one in alert["evidence"]:
            names = ("class", "domain", "collection", "key")
            _expect(_has(one, **dict.fromkeys(names, str)), "no evidence")
            _expect(protocol.are_sources(one.get("sources")), "no sources")
            _expect(len(one) == 5, "unexpected fields in the evidence")


def check_forecast(item: str, result: Any) -> None:
    """Expect a timeline that shows when a constraint's findings change."""
    _expect(
        _has(result, findings=list, changes=list, takes_now=bool, calls=int) and len(result) == 5,
        "no forecast",
    )
    _expect(isinstance(result.get("until", 0), (str, type(None))), "no end")
    for finding in result["findings"]:
        _expect(_has(finding, records=list, wording=str) and len(finding) == 3, "no finding")
        _expect(isinstance(finding.get("key", 0), (str, type(None))), "no key")
        _expect(
            finding["records"] or finding.get("key"), "a finding with neither records nor a key"
        )
        for record in finding["records"]:
            _expect(_are(record, str, str, str), "no record")
    for change in result["changes"]:
        _expect(_has(change, at=str, found=list) and len(change) == 3, "no change")
        _expect(isinstance(change.get("error", 0), (str, type(None))), "no error")
        for one in change["found"]:
            _expect(
                _are(one, int, str) and one[1] in protocol.SEVERITIES,
                "an invalid finding in a change",
            )
            _expect(0 <= one[0] < len(result["findings"]), "no such finding")


def check_tests(item: str, result: Any) -> None:
    """Expect a list of test results, all of them for tests in the file that the item names."""
    _expect(isinstance(result, list), "no tests")
    for test in result:
        _expect(
            _has(test, name=str) and test["name"].startswith(f"{item}::"),
            "a test from another file",
        )
        _expect(test.keys() <= {"name", "error", "same_evidence"}, "unexpected fields in a test")
        _expect(
            _are(test.get("same_evidence") or ["", ""], str, str),
            "invalid alerts with the same evidence",
        )
        _check_error(test.get("error"))


def _check_error(error: Any) -> None:
    if error is not None:
        _expect(_has(error, type=str, message=str, traceback=str), "no error")
        _expect(error.keys() <= ERROR, "unexpected fields in an error")
        _expect(isinstance(error.get("path"), (str, type(None))), "no path")
        line = error.get("line")
        _expect(
            line is None or (type(line) is int and 0 <= line <= protocol.MAX_INTEGER), "no line"
        )


def _has(value: Any, **kinds: type) -> bool:
    return isinstance(value, dict) and all(
        type(value.get(name)) is kind for name, kind in kinds.items()
    )


def _are(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and [type(one) for one in value] == [*kinds]


def _expect(condition: object, otherwise: str) -> None:
    if not condition:
        raise protocol.ProtocolError(otherwise)
