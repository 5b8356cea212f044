"""The API of exports."""
