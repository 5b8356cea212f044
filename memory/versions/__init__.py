"""Versions of users' projects: checkpoints, history, runs."""
