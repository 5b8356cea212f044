"""The Model Context Protocol: tools and resources for agents, each a request to the API."""
