"""What a worker process does: dispatch, take hints, serve as a sandbox host, start and stop."""
