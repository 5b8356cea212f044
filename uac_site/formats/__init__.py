"""Formats of dates and times, by language: see `FORMAT_MODULE_PATH` in the settings."""
