"""The Model Context Protocol: tools and resources for agents, all served through the API."""
