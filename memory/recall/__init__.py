"""Reading a user's memory: search, context for a prompt, retrieval of files, and queries."""
