"""Models of tenants, people and work."""
