"""Prometheus metrics of the workers, and the server that serves them."""
