"""Models of alerts and their delivery."""
