"""What a worker process does: dispatch, consume hints, serve as a sandbox host, start and stop."""
