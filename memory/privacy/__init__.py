"""Privacy: encryption, redaction, retention, and erasure of users."""
