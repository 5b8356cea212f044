"""Django's backend for PostgreSQL, which sees for itself that a connection has ended."""
