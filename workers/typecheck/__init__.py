"""Check the types of a user's project, in a container of its own image."""
