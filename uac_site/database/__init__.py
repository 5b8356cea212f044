"""Django's PostgreSQL backend, extended to detect closed connections without a query."""
