"""Models of the log."""
