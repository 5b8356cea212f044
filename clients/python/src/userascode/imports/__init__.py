"""Imports of what another memory, or an account of an assistant, holds of a user."""
