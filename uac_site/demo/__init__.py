"""The demo: a whole server on this machine, and a sample person's months of life in it."""
