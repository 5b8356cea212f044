"""The demo: a whole server on this machine, loaded with months of a sample person's life."""
