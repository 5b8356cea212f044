"""Django's backend for PostgreSQL, which detects a closed connection by itself."""
