"""The demo: a whole server on this machine, with some months of a sample person's life in it."""
