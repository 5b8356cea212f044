"""The staff's screens for integrations."""
