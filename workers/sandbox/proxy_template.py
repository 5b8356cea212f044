"""Compare the body of a `create` request with the template for sandboxes."""

import contextlib
import json
import re
from typing import Any

from django.conf import settings

from workers.sandbox.container_template import USER_IDS, container_config
from workers.sandbox.limits import DEFAULT_SHAPE, MEBIBYTE, Shape
from workers.sandbox.ownership import LABEL
from workers.sandbox.proxy_requests import RequestDenied

# Boot id, PID namespace, process id (on Linux at most 2**22), and the process's start time.
OWNER = re.compile(r"[0-9a-f-]{36}/pid:\[\d{1,20}\]/\d{1,7}/\d{0,20}", re.ASCII)


def from_template(body: bytes) -> dict[str, Any]:
    """Return the template if the body of a `create` request equals it, else raise RequestDenied.

    Values that differ from sandbox to sandbox (image id, user, hash seed, owner, and the limit on
    memory) are read from the body, checked against their bounds and put into the template.
    """
    given = _parsed(body)
    try:
        (seed,), user, labels = given["Env"], given["User"], given["Labels"]
        hash_seed = int(_match(r"PYTHONHASHSEED=(\d{1,10})", seed, "Env"))
        user_id = int(_match(r"(\d{5}):\d{5}", user, "User"))
        image = _match(r"(sha256:[0-9a-f]{64})", given["Image"], "Image")
        if list(labels) != [LABEL] or not OWNER.fullmatch(labels[LABEL]):
            raise RequestDenied("create: Labels are not those of a sandbox")
        if user_id not in USER_IDS or hash_seed >= 2**32:
            raise RequestDenied("create: User or hash seed is out of bounds")
        shape = Shape(memory_mib=_memory_mib(given["HostConfig"]["Memory"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestDenied(f"create: does not match the template: {error!r:.100}") from None
    template = container_config(image, hash_seed, shape)
    template |= {"User": f"{user_id}:{user_id}", "Labels": labels}
    if differing := _difference(template, given):
        raise RequestDenied(f"create: {differing} differs from the template")
    return template


def _parsed(body: bytes) -> dict[str, Any]:
    """Parse a JSON object in which no key occurs twice, so that all parsers see the same values."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique_pairs = dict(pairs)
        if len(unique_pairs) != len(pairs):
            raise RequestDenied("create: a key is repeated", 400)
        return unique_pairs

    def no_constant(name: str) -> None:
        raise RequestDenied(f"create: {name} is not JSON", 400)

    try:
        given = json.loads(body.decode(), object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise RequestDenied("create: the body is not JSON", 400) from None
    if not isinstance(given, dict):
        raise RequestDenied("create: the body is not an object", 400)
    return given


def _match(pattern: str, text: str, field: str) -> str:
    if (match := re.fullmatch(pattern, text, re.ASCII)) is None:
        raise RequestDenied(f"create: {field} is not that of a sandbox")
    return match[1]


def _memory_mib(given: Any) -> int:
    """Return the limit on memory, which a workspace's or the type checker's sandboxes may have."""
    memory_mib = given // MEBIBYTE
    most = max(settings.UAC_SANDBOX_MEMORY_MIB_MOST, DEFAULT_SHAPE.memory_mib)
    if type(memory_mib) is not int or not 1 <= memory_mib <= most:
        raise RequestDenied(f"create: Memory is out of bounds (1 to {most})")
    return memory_mib


def _difference(expected: Any, given: Any, path: str = "") -> str:
    """Return where two JSON values first differ in value or type; "" if they are equal."""
    if isinstance(expected, dict) and isinstance(given, dict):
        for name in sorted({*expected, *given}):
            here = f"{path}.{name:.40}".lstrip(".")
            if name not in expected or name not in given:
                return here
            if differing := _difference(expected[name], given[name], here):
                return differing
        return ""
    # Python treats 1, 1.0 and true as equal, but not every JSON parser does.
    with contextlib.suppress(RecursionError):  # nested too deeply to be serialized
        if json.dumps(expected, sort_keys=True) == json.dumps(given, sort_keys=True):
            return ""
    return path or "the body"
