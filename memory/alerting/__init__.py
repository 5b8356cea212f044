"""Alerts: opening, merging, limiting and resolving them, based on the findings of constraints."""
