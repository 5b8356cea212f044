"""Operating the server: alarms for the operator, traces, and verification of stored data."""
