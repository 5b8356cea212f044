"""The API of alerts and webhooks."""
