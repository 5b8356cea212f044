"""Date and time formats, by language: see `FORMAT_MODULE_PATH` in the settings."""
