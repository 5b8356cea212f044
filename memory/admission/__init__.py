"""Admission control: rates, quotas in use, refusals, request slots and pauses."""
