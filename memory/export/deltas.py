"""Binary deltas between two versions of a file's content, in the format of git's packs."""

# Maximum number of bytes per instruction; longer copies and inserts are split.
MAX_COPIED = 0xFFFF
MAX_INSERTED = 0x7F


def delta(base: bytes, target: bytes) -> bytes:
    """Return the delta from `base` to `target`, which copies their common prefix and common suffix.

    The delta is optimal if records were added, changed or retired in only one place, and computing
    it doesn't require searching for similar sections.
    """
    most = min(len(base), len(target))
    head = _shared(base[:most], target[:most])
    rest = most - head
    tail = _shared(base[len(base) - rest :][::-1], target[len(target) - rest :][::-1])
    parts = [_size(len(base)), _size(len(target)), *_copies(0, head)]
    between = target[head : len(target) - tail]
    for start in range(0, len(between), MAX_INSERTED):
        some = between[start : start + MAX_INSERTED]
        parts += [bytes([len(some)]), some]
    return b"".join([*parts, *_copies(len(base) - tail, tail)])


def _shared(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two byte strings of equal length."""
    low, high = 0, len(one)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _copies(start: int, length: int) -> list[bytes]:
    parts = []
    for offset in range(start, start + length, MAX_COPIED):
        size = min(MAX_COPIED, start + length - offset)
        # All bytes of the offset and the size are written, including zeros.
        parts.append(b"\xbf" + offset.to_bytes(4, "little") + size.to_bytes(2, "little"))
    return parts


def _size(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
