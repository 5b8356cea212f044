"""Language model work: turning messages into facts, and facts into edits.

This package uses neither a sandbox nor the gate. Its edits are proposed like anybody else's and
judged by a sandbox worker, so its process needs the database, Redis and a language model provider,
but no Docker.
"""
