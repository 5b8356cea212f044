"""The API of merging and imports."""
