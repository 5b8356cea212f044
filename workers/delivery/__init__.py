"""Deliveries: webhooks and mails, sent to servers that may be slow or hostile."""
