"""A worker process: dispatch, take hints, serve as a sandbox host, begin and stop."""
