"""Deliveries: webhooks and emails, sent to servers that may be slow or hostile."""
