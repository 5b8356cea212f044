"""The staff's screens in Django's admin: one module per aggregate, as the models."""

from memory.admin import alerts, checkpoints, log, runs, users, workspaces

__all__ = ["alerts", "checkpoints", "log", "runs", "users", "workspaces"]
