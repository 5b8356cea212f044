"""Django's PostgreSQL backend, extended to detect a closed connection without a query."""
