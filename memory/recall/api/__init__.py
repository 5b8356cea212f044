"""The API of recall."""
