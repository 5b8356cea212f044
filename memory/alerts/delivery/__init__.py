"""Outgoing messages: webhooks and staff emails, and which addresses may be called."""
