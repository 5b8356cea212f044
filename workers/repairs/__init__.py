"""Mechanical repairs to Python code that somebody else wrote; imports no Django."""
