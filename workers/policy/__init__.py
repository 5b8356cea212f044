"""The static policy on what users' Python code may contain."""
