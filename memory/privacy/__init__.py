"""Privacy: encryption, redaction, retention, and the erasure of a person."""
