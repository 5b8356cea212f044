"""Settings of a workspace, each of which may override a default of the server."""
