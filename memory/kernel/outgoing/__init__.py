"""Requests to servers of others: which addresses may be called, and calls that end in time."""
