"""Run a server: files for deployments, and programs that need none of them (demo, embedded)."""
