"""The staff's screens of the log."""
