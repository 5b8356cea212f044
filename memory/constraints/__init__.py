"""Constraints: their sources, workspace constraints, and a library of ready-made ones."""
