"""Uploaded documents."""
