"""The API of mem0, as its public client calls it, over our log: see docs/mem0.md."""
