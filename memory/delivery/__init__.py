"""Outgoing messages: webhooks and mails to the staff, and the addresses that they may reach."""
