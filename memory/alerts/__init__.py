"""Alerts: opening, merging, limiting and resolving them, based on constraints' findings."""
