"""The API of versions."""
