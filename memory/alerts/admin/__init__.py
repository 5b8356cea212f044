"""The staff's screens of alerts and their delivery."""
