"""Reading a user's memory: search, prompt context, file retrieval, and queries."""
