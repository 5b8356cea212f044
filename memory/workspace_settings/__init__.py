"""Settings of a workspace, each of which overrides a default of the server."""
