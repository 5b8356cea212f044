"""Delivery of webhooks and emails to servers that may be slow or hostile."""
