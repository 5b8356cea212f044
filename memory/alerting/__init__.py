"""Alerts: open, merge, limit and resolve them from the findings of constraints."""
