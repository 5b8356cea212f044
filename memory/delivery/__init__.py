"""Outgoing messages: webhooks and emails to the staff, and the addresses that may be called."""
