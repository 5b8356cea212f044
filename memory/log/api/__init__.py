"""The API of the log."""
