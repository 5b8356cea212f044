"""Prometheus metrics for the workers, and the HTTP server that serves the metrics."""
