"""People's memory: the Django app."""
