"""Admission control: rate limits, usage quotas, refusals, request slots and pauses."""
