"""mem0's API, as its public client calls it, implemented on top of our log: see docs/mem0.md."""
