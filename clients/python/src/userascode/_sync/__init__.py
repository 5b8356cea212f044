"""The synchronous client.

Generated from `_async/__init__.py`.
"""
