"""What differs between two contents of a file, as git's packs write it."""

# Of one instruction: longer ones are split.
MOST_COPIED = 0xFFFF
MOST_INSERTED = 0x7F


def delta(base: bytes, target: bytes) -> bytes:
    """Return how `target` follows from `base`: its beginning and its end, and what is between.

    That is all where records are added, changed or retired at one place, and takes no search.
    """
    most = min(len(base), len(target))
    head = _shared(base[:most], target[:most])
    rest = most - head
    tail = _shared(base[len(base) - rest :][::-1], target[len(target) - rest :][::-1])
    parts = [_size(len(base)), _size(len(target)), *_copies(0, head)]
    between = target[head : len(target) - tail]
    for start in range(0, len(between), MOST_INSERTED):
        some = between[start : start + MOST_INSERTED]
        parts += [bytes([len(some)]), some]
    return b"".join([*parts, *_copies(len(base) - tail, tail)])


def _shared(one: bytes, other: bytes) -> int:
    """Return for how many bytes two texts of the same length begin alike."""
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
    for offset in range(start, start + length, MOST_COPIED):
        size = min(MOST_COPIED, start + length - offset)
        # All bytes of both numbers are given, also those that are 0.
        parts.append(b"\xbf" + offset.to_bytes(4, "little") + size.to_bytes(2, "little"))
    return parts


def _size(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
