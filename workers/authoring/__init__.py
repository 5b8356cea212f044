"""Language model tasks: turning messages into facts, and facts into edits.

This package uses neither a sandbox nor the gate. The model's edits are submitted as proposals like
anybody else's and judged by a sandbox worker, so the process that runs this package needs the
database, Redis and a language model provider, but not Docker.
"""
