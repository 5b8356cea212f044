"""Duties of a worker process: dispatch, consume hints, serve as a sandbox host, start and stop."""
