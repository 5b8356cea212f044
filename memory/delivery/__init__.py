"""Outgoing messages: webhooks, emails to the staff, and the addresses that may be called."""
