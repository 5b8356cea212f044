"""What a language model writes: facts from messages, edits from facts.

It holds no sandbox and no gate. What it writes is proposed like anybody's edits, and judged by a
sandbox worker; so its process needs the database, Redis and a provider, and never Docker.
"""
