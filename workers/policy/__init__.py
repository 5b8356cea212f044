"""The static policy of what users' Python may contain."""
