"""Constraints: their sources, the workspace's own, and the library to start from."""
