"""Management commands of the server."""
