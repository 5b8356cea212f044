"""Prometheus metrics of the workers, and the server that answers for them."""
