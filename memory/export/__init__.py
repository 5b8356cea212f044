"""A user's project for use elsewhere: as files, as a zip, and as a git repository."""
