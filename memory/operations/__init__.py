"""Operation of the server: alarms for the operator, traces, and verification of the stored data."""
