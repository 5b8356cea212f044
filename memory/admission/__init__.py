"""Admission control: rates, usage against quotas, refusals, request slots and pauses."""
