"""Models of versions and runs."""
