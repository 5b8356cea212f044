"""The API of erasure."""
