"""Slots for tests: as many as they need."""

from memory.kernel.admission.slots import Slots


def free_slots(slots: Slots, number: int, factor: int = 1) -> Slots:
    """Return so many free slots with the same refusals as `slots`."""
    limit, detail, retry_seconds = slots._refusal
    return Slots(number, factor, limit=limit, detail=detail, retry_seconds=retry_seconds)
