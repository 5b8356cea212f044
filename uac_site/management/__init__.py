"""Management commands that need the workers."""
